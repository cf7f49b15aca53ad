import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type {
  ByteStore,
  ChatMessage,
  Engine,
  EngineConfig,
  GenerationRequest,
  PromptFigures,
  RequestOutput,
  SamplingParams,
} from "../../engine/index.ts";
import { goldensFolder, loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import type { GoldenCase } from "../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { endless, lastingClassName } from "../support/requests/lasting-answers.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { Exiting } from "./exiting-processor.ts";
import { Pausing } from "./pausing-processor.ts";

let cache: TemporaryFolder;
let engine: Engine;

beforeAll(async () => {
  cache = await createTemporaryFolder();
  engine = startEngine({ logitsProcessors: [{ className: lastingClassName, options: {} }] });
  await engine.ready;
});

afterAll(async () => {
  await engine.close();
  await cache[Symbol.asyncDispose]();
});

function startEngine(overrides: Partial<EngineConfig> = {}): Engine {
  const config: EngineConfig = {
    ...goldenEngineConfig("llava-default", cache.path),
    ...overrides,
  };
  return createEngine(config, { imageSources: [createDataUrlImageSource()] });
}

let numRequests = 0;

function ask(messages: readonly ChatMessage[], params: Partial<SamplingParams> = {}): GenerationRequest {
  numRequests += 1;
  return {
    requestId: `request-${numRequests}`,
    prompt: { kind: "chat", messages, addGenerationPrompt: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true, ...params }),
  };
}

const greeting = [{ role: "user", content: "Describe the picture." }] as const;

async function askGolden({ messages, pictures }: GoldenCase, params?: Partial<SamplingParams>) {
  const references = await Promise.all(pictures.map(pictureReference));
  const filled = messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? { type: "image" as const, reference: references.shift() as string } : part,
    ),
  }));
  return ask(filled, params);
}

async function collect(outputs: AsyncIterable<RequestOutput>) {
  const all: RequestOutput[] = [];
  for await (const output of outputs) all.push(output);
  return {
    text: all.map(({ text }) => text).join(""),
    tokenIds: all.flatMap(({ tokenIds }) => tokenIds),
    logprobs: all.flatMap(({ logprobs }) => logprobs ?? []),
    last: all.at(-1) as RequestOutput,
  };
}

/** The engine thread's last report, once nothing is running any more. */
async function waitUntilIdle(of: Engine): Promise<void> {
  while (of.stats.numRequestsRunning > 0 || of.stats.numRequestsWaiting > 0) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("greedy tokens equal those of transformers, with all prompts at once", async () => {
  const { cases } = await loadGoldens("llava-default");
  const results = await Promise.all(cases.map(async (golden) => collect(engine.generate(await askGolden(golden)))));
  for (const [index, golden] of cases.entries()) {
    const { tokenIds, last } = results[index]!;
    expect(tokenIds).toEqual(golden.greedyTokenIds);
    expect(last).toMatchObject({
      finishReason: "length",
      numPromptTokens: golden.promptTokenIds.length,
      numImageTokens: golden.pictures.length * 16,
      numOutputTokens: 32,
    });
  }
});

test("a ready engine describes its model", () => {
  expect(engine.state).toBe("ready");
  expect(engine.modelInfo).toMatchObject({
    architecture: "LlavaForConditionalGeneration",
    acceptsImages: true,
    hasChatTemplate: true,
    specialTokens: { bos_token: "<s>", eos_token: "</s>", image_token: "<image>" },
  });
});

test("a stop string ends the text, and the sequence in the engine thread", async () => {
  const whole = await collect(engine.generate(ask(greeting)));
  const stop = whole.text.slice(3, 6);
  const { text, last } = await collect(engine.generate(ask(greeting, { stop: [stop], maxTokens: 400 })));
  expect(text).toBe(whole.text.slice(0, whole.text.indexOf(stop)));
  expect(last).toMatchObject({ finishReason: "stop", stopReason: stop });
  expect(last.numOutputTokens).toBeLessThan(32);
  await waitUntilIdle(engine);
});

test("every token has logprobs", async () => {
  const { logprobs, tokenIds } = await collect(engine.generate(ask(greeting, { logprobs: 2 })));
  expect(logprobs.map(({ sampled }) => sampled.tokenId)).toEqual(tokenIds);
  for (const { sampled, top } of logprobs) {
    expect(top).toHaveLength(2);
    expect(top[0]).toEqual(sampled);
  }
});

test("the same seed gives the same tokens, and no seed gives different ones", async () => {
  const sample = async (seed: number | null) =>
    (await collect(engine.generate(ask(greeting, { temperature: 2, seed })))).tokenIds;
  expect(await sample(5)).toEqual(await sample(5));
  expect(await sample(null)).not.toEqual(await sample(null));
});

describe("a request that ends early", () => {
  test("by its signal throws aborted and frees the slot", async () => {
    const aborting = new AbortController();
    const lasting = ask(greeting, { maxTokens: 400, extraArgs: endless.vllm_xargs });
    const outputs = engine.generate(lasting, { signal: aborting.signal });
    const reading = async (): Promise<void> => {
      for await (const output of outputs) if (output.numOutputTokens > 2) aborting.abort();
    };
    await expect(reading()).rejects.toMatchObject({ code: "aborted" });
    await waitUntilIdle(engine);
  });

  test("by a signal that was aborted before never starts", async () => {
    const outputs = engine.generate(ask(greeting), { signal: AbortSignal.abort() });
    await expect(collect(outputs)).rejects.toMatchObject({ code: "aborted" });
  });

  test("before its first output has told the size of its prompt, unless it never waited", async () => {
    const told: PromptFigures[] = [];
    const onQueued = (figures: PromptFigures) => void told.push(figures);
    const first = await collect(engine.generate(ask(greeting), { onQueued }));
    const { numPromptTokens, numImageTokens } = first.last;
    const aborting = new AbortController();
    const outputs = engine.generate(ask(greeting), {
      signal: aborting.signal,
      onQueued(figures) {
        onQueued(figures);
        aborting.abort();
      },
    });
    await expect(collect(outputs)).rejects.toMatchObject({ code: "aborted" });
    const figures = { numPromptTokens, numImageTokens, numVideoTokens: 0 };
    expect(told).toEqual([figures, figures]);
    const wrong = engine.generate({ ...ask(greeting), numChoices: 2 }, { onQueued });
    await expect(collect(wrong)).rejects.toThrow(/numChoices must be 1/);
    expect(told).toHaveLength(2);
    await waitUntilIdle(engine);
  });

  test("by leaving its iteration frees the slot", async () => {
    for await (const output of engine.generate(ask(greeting, { maxTokens: 400 }))) {
      if (output.numOutputTokens > 2) break;
    }
    await waitUntilIdle(engine);
    expect(engine.stats.kvCacheUsage).toBe(0);
  });

  test("by return, while waiting for an output, ends the wait", async () => {
    const iterator = engine.generate(ask(greeting, { maxTokens: 400 }))[Symbol.asyncIterator]();
    await iterator.next();
    const waiting = iterator.next();
    const returned = iterator.return?.();
    await Promise.allSettled([waiting]);
    expect(await returned).toEqual({ done: true, value: undefined });
    await waitUntilIdle(engine);
  });
});

describe("a request whose reader is busy or gone", () => {
  test("ends in the engine thread when its signal is aborted", async () => {
    const processor = `${join(import.meta.dirname, "pausing-processor.ts")}:${Pausing.name}`;
    const other = startEngine({ logitsProcessors: [{ className: processor, options: {} }] });
    await other.ready;
    const file = join(cache.path, "aborted");
    const aborting = new AbortController();
    const request = ask(greeting, { maxTokens: 400, extraArgs: { waits_for: file } });
    const iterator = other.generate(request, { signal: aborting.signal })[Symbol.asyncIterator]();
    await iterator.next();
    aborting.abort();
    // The thread gets the abort in the next turn of the event loop, while it waits for the file.
    await nextTurn();
    await writeFile(file, "");
    await waitUntilIdle(other);
    expect(other.stats.numGenerationTokens).toBeLessThan(400);
    await expect(iterator.next()).rejects.toMatchObject({ code: "aborted" });
    await other.close();
  });

  test("leaves its place to a request that begins at once", async () => {
    const other = startEngine({ maxNumSequences: 1, maxNumWaiting: 0 });
    await other.ready;
    const leaving = other.generate(ask(greeting, { maxTokens: 400 }))[Symbol.asyncIterator]();
    await leaving.next();
    await leaving.return?.();
    const { last } = await collect(other.generate(ask(greeting, { maxTokens: 4 })));
    expect(last.finishReason).toBe("length");
    await other.close();
  });
});

describe("a rejected request", () => {
  test("does not change the engine", async () => {
    const bad: [GenerationRequest, string][] = [
      [ask([{ role: "user", content: "word ".repeat(10_000) }]), "prompt_too_long"],
      [ask([{ role: "user", content: [{ type: "image", reference: "data:image/png;base64,AAAA" }] }]), "invalid_image"],
      [ask([{ role: "user", content: [{ type: "image", reference: "nothing" }] }]), "invalid_image_reference"],
    ];
    for (const [request, code] of bad) {
      await expect(collect(engine.generate(request))).rejects.toMatchObject({ code });
    }
    const { cases } = await loadGoldens("llava-default");
    const { tokenIds } = await collect(engine.generate(await askGolden(cases[1]!)));
    expect(tokenIds).toEqual(cases[1]!.greedyTokenIds);
  });

  test("with a duplicate id can be sent again later", async () => {
    const request = ask(greeting);
    const first = collect(engine.generate(request));
    await expect(collect(engine.generate(request))).rejects.toMatchObject({
      code: "invalid_argument",
      parameter: "requestId",
    });
    const { tokenIds } = await first;
    expect((await collect(engine.generate(request))).tokenIds).toEqual(tokenIds);
  });

  test("with a full queue names both limits, and the others are served", async () => {
    const started = Array.from({ length: 8 }, () => collect(engine.generate(ask(greeting, { maxTokens: 4 }))));
    await expect(collect(engine.generate(ask(greeting)))).rejects.toMatchObject({
      code: "queue_full",
      message: expect.stringMatching(/8 .* 4 and 4/),
    });
    expect(await Promise.all(started)).toHaveLength(8);
  });

  test("with too little room for its choices names their number", async () => {
    const started = Array.from({ length: 6 }, () => collect(engine.generate(ask(greeting, { maxTokens: 4 }))));
    const request = { ...ask(greeting, { temperature: 1 }), numChoices: 3 };
    await expect(collect(engine.generate(request))).rejects.toMatchObject({
      code: "queue_full",
      message: "6 sequences run or wait, and this request asks for 3 choices; the limits are 4 and 4.",
    });
    expect(await Promise.all(started)).toHaveLength(6);
  });
});

describe("a request for several choices", () => {
  const sampled = { temperature: 1, seed: 11, maxTokens: 12 };

  async function collectChoices(request: GenerationRequest): Promise<Map<number, RequestOutput[]>> {
    const choices = new Map<number, RequestOutput[]>();
    for await (const output of engine.generate(request)) {
      choices.set(output.index, [...(choices.get(output.index) ?? []), output]);
    }
    return choices;
  }

  test("gives each choice the text of a separate request with the next seed", async () => {
    const golden = (await loadGoldens("llava-default")).cases[0]!;
    const choices = await collectChoices({ ...(await askGolden(golden, sampled)), numChoices: 3 });
    expect(new Set(choices.keys())).toEqual(new Set([0, 1, 2]));
    for (const [index, outputs] of choices) {
      const alone = await collect(engine.generate(await askGolden(golden, { ...sampled, seed: sampled.seed + index })));
      expect(outputs.flatMap(({ tokenIds }) => tokenIds)).toEqual(alone.tokenIds);
      expect(outputs.at(-1)).toMatchObject({ finishReason: "length", numOutputTokens: 12 });
    }
  });

  test("is aborted as a whole", async () => {
    const request = { ...ask(greeting, { ...sampled, maxTokens: 400 }), numChoices: 3 };
    for await (const output of engine.generate(request)) if (output.numOutputTokens > 2) break;
    await waitUntilIdle(engine);
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0 });
  });

  test.for([
    [{ numChoices: 2 }, "must be 1 when using greedy sampling, got 2"],
    [{ numChoices: 0 }, "must be at least 1, got 0."],
    [{ numChoices: 9 }, "must be at most 8, "],
  ] as const)("%o is rejected", async ([more, problem]) => {
    const refused = collect(engine.generate({ ...ask(greeting), ...more }));
    await expect(refused).rejects.toMatchObject({
      code: "invalid_argument",
      parameter: "numChoices",
      message: expect.stringContaining(problem),
    });
  });

  test("returns the prompt with each choice's first output if requested", async () => {
    const prompt = { kind: "text", text: "a red", addSpecialTokens: false } as const;
    const request = { ...ask(greeting, sampled), prompt, numChoices: 2, includePrompt: true };
    for (const [first, ...rest] of (await collectChoices(request)).values()) {
      expect(first!.prompt).toMatchObject({ text: "a red", logprobs: null });
      expect(first!.prompt?.tokens.map(({ token }) => token).join("")).toBe("a red");
      expect(rest.every((output) => output.prompt === null)).toBe(true);
    }
  });

  test("computes the prompt's logprobs once and returns them with each choice", async () => {
    const golden = (await loadGoldens("llava-default")).cases[0]!;
    const params = { ...sampled, promptLogprobs: 1 };
    await waitUntilIdle(engine);
    const before = engine.stats;
    const choices = await collectChoices({ ...(await askGolden(golden, params)), numChoices: 3 });
    await waitUntilIdle(engine);
    const numPromptTokens = golden.promptTokenIds.length;
    // The first choice computes its whole prompt in several steps. The others wait until at most 16 tokens are left of it.
    expect(engine.stats.numPrefixCacheQueries - before.numPrefixCacheQueries).toBe(2 * numPromptTokens);
    const numHits = engine.stats.numPrefixCacheHits - before.numPrefixCacheHits;
    expect(numHits).toBeGreaterThanOrEqual(2 * (numPromptTokens - 16));
    const prompts = [...choices.values()].map(([first]) => first!.prompt);
    expect(prompts[0]!.logprobs).toHaveLength(numPromptTokens);
    expect(prompts).toEqual([prompts[0], prompts[0], prompts[0]]);
  });
});

describe("logits processors given as classes", () => {
  async function runChild(kind: string): Promise<string> {
    const script = fileURLToPath(new URL("./given-classes-child.ts", import.meta.url));
    const folder = join(goldensFolder, "llava-default");
    const fromSources = "--conditions=fovea-source";
    return (await promisify(execFile)(process.execPath, [fromSources, script, kind, folder, cache.path])).stdout;
  }

  test("are imported by the engine thread from the module that exports them", async () => {
    expect(await runChild("exported")).toBe("Given gives 7,7,7");
  });

  test("are rejected if their module does not export them under their name", async () => {
    expect(await runChild("hidden")).toBe(
      "invalid_logits_processor: Logits processor 1 of 1, Hidden, could not be loaded: there is no export Hidden; there are: Given, hidden.",
    );
  });

  test("are rejected if their module creates the engine", async () => {
    expect(await runChild("local")).toMatch(
      /^invalid_logits_processor: Logits processor 1 of 1, Local, .* creates an engine when it is imported\. Move the class to its own module\.$/,
    );
  });

  test("do not create engines recursively", async () => {
    const creating = `${new URL("./creating-engine-processor.ts", import.meta.url).href}:Creating`;
    const other = startEngine({ logitsProcessors: [{ className: creating, options: {} }] });
    await expect(other.ready).rejects.toThrow(/creates an engine when it is imported\. Move the class/);
    await other.close();
  });
});

describe("life and death", () => {
  test("requests are rejected while the model loads and after the engine is closed", async () => {
    const other = startEngine();
    expect(other.state).toBe("loading");
    expect(other.modelInfo).toBeNull();
    await expect(collect(other.generate(ask(greeting)))).rejects.toMatchObject({ code: "not_ready" });
    await other.ready;
    const running = collect(other.generate(ask(greeting, { maxTokens: 400 })));
    const closing = other.close();
    await expect(running).rejects.toMatchObject({ code: "closed" });
    expect(other.close()).toBe(closing);
    await closing;
    expect(other.state).toBe("closed");
    await expect(collect(other.generate(ask(greeting)))).rejects.toMatchObject({ code: "closed" });
  });

  test("the death of the engine thread ends every request with an error and fails the engine for good", async () => {
    const processor = `${join(import.meta.dirname, "exiting-processor.ts")}:${Exiting.name}`;
    const other = startEngine({ logitsProcessors: [{ className: processor, options: {} }] });
    await other.ready;
    const refused = collect(other.generate(ask(greeting, { extraArgs: { refused: true } })));
    await expect(refused).rejects.toMatchObject({ code: "invalid_argument", message: "This request is refused." });
    const running = [collect(other.generate(ask(greeting))), collect(other.generate(ask(greeting)))];
    for (const request of running) {
      await expect(request).rejects.toMatchObject({ code: "internal", message: expect.stringContaining("code 7") });
    }
    expect(other.state).toBe("failed");
    await expect(collect(other.generate(ask(greeting)))).rejects.toMatchObject({ code: "internal" });
    await other.close();
  });

  test("a process exits by itself after its engine is closed", async () => {
    const script = fileURLToPath(new URL("./close-child.ts", import.meta.url));
    const folder = join(goldensFolder, "llava-default");
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [script, folder, cache.path]);
    expect({ stdout, stderr }).toEqual({ stdout: "4", stderr: "" });
  });

  test("closing during loading ends the loading", async () => {
    const other = startEngine();
    const closing = other.close();
    await expect(other.ready).rejects.toMatchObject({ code: "closed" });
    await closing;
  });

  test("closing ends a start that waits for the shared store, and closes the store when it comes", async () => {
    const opening = Promise.withResolvers<ByteStore>();
    const asked = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    const other = createEngine(
      { cacheFolder: cache.path },
      {
        createByteStore: () => {
          asked.resolve();
          return opening.promise;
        },
      },
    );
    await asked.promise;
    await other.close();
    await expect(other.ready).rejects.toMatchObject({ code: "closed" });
    opening.resolve({ close: () => Promise.resolve(closed.resolve()) } as Partial<ByteStore> as ByteStore);
    await closed.promise;
  });

  test.for<[object, string]>([
    [{ imageSources: {} }, "imageSources is an object; expected a list."],
    [
      { imageSources: [createDataUrlImageSource(), 5] },
      "imageSources[1] is 5; expected an object with schemes, a list, and fetch.",
    ],
    [{ createByteStore: {} }, "createByteStore is an object; expected a function."],
  ])("a dependency of another kind is rejected at once: %o", ([dependencies, message]) => {
    expect(() => createEngine({}, dependencies)).toThrow(
      expect.objectContaining({ code: "invalid_configuration", message }),
    );
  });

  test("a misspelled dependency is rejected at once", () => {
    const misspelled = { imageSources: [], onProgres: () => {} };
    expect(() => createEngine({}, misspelled)).toThrow(
      expect.objectContaining({
        code: "invalid_configuration",
        message: expect.stringContaining(
          "The second argument of createEngine has no onProgres; it takes imageSources,",
        ),
      }),
    );
  });

  test.for([
    ["a folder that is not there", { model: "/nowhere" }, "invalid_configuration"],
    ["a folder without a checkpoint", { model: goldensFolder }, "invalid_checkpoint"],
    ["a length beyond the checkpoint's", { maxModelLen: 1e6 }, "invalid_configuration"],
    [
      "a logits processor that is not there",
      { logitsProcessors: [{ className: "no.such:Thing", options: {} }] },
      "invalid_logits_processor",
    ],
  ] as const)("%s fails the engine by name", async ([, overrides, code]) => {
    const other = startEngine(overrides);
    await expect(other.ready).rejects.toMatchObject({ code });
    expect(other.state).toBe("failed");
    await expect(collect(other.generate(ask(greeting)))).rejects.toMatchObject({ code });
    await other.close();
  });
});
