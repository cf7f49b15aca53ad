import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, EngineOptions, GenerationRequest, RequestOutput, SamplingParams } from "../../engine/index.ts";
import { pictureReference } from "../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { endless, lastingClassName } from "../support/requests/lasting-answers.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

async function startEngine(options: EngineOptions, model = "llama"): Promise<Engine & AsyncDisposable> {
  const config = { ...goldenEngineConfig(model, folder.path), ...options };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  await engine.ready;
  return Object.assign(engine, { [Symbol.asyncDispose]: () => engine.close() });
}

function ask(requestId: string, params: Partial<SamplingParams> = {}, text = "A red circle."): GenerationRequest {
  return {
    requestId,
    prompt: { kind: "text", text, addSpecialTokens: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 16, ignoreEos: true, ...params }),
  };
}

async function outputsOf(engine: Engine, request: GenerationRequest): Promise<RequestOutput[]> {
  const outputs: RequestOutput[] = [];
  for await (const output of engine.generate(request)) outputs.push(output);
  return outputs;
}

async function tokensOf(engine: Engine, request: GenerationRequest): Promise<number[]> {
  return (await outputsOf(engine, request)).flatMap(({ tokenIds }) => tokenIds);
}

test("copies answer as one does, and give everything back", async () => {
  const requests = Array.from({ length: 12 }, (_, index) =>
    ask(`request-${index}`, index % 2 === 0 ? {} : { temperature: 1, seed: index }, `Circle number ${index}.`),
  );
  await using one = await startEngine({ maxNumWaiting: 16 });
  const expected = await Promise.all(requests.map((request) => tokensOf(one, request)));

  await using three = await startEngine({ dataParallelSize: 3, maxNumSequences: 1, maxNumWaiting: 16 });
  expect(three.modelInfo?.maxNumSequences).toBe(3);
  expect(three.stats.kvCapacity.numTokens).toBe(3 * three.stats.kvCapacity.blockSize);
  expect(await Promise.all(requests.map((request) => tokensOf(three, request)))).toEqual(expected);
  await expect.poll(() => three.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  expect(three.stats.numGenerationTokens).toBe(12 * 16);
});

test("the next turn of a conversation goes to the copy that has computed the earlier ones", async () => {
  await using engine = await startEngine({ dataParallelSize: 2 }, "llava-default");
  const picture = { type: "image" as const, reference: await pictureReference("drawing.png") };
  const turn = (conversation: string, length: number): GenerationRequest => ({
    requestId: `${conversation}-${length}`,
    prompt: {
      kind: "chat",
      messages: [
        {
          role: "user",
          content: [picture, { type: "text", text: `Conversation ${conversation}. `.repeat(4 * length) }],
        },
      ],
      addGenerationPrompt: true,
    },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 4 }),
    cacheSalt: conversation,
  });
  for (const length of [1, 2, 3, 4]) {
    for (const conversation of ["one", "two", "three"]) {
      const [first] = await outputsOf(engine, turn(conversation, length));
      const numKept = first!.numCachedTokens - first!.numImageTokens;
      expect({ conversation, length, isKept: numKept > 0 }).toEqual({ conversation, length, isKept: length > 1 });
    }
  }
});

test("requests end in the copy that computes them, and others take their place", async () => {
  await using engine = await startEngine({
    dataParallelSize: 2,
    maxNumSequences: 1,
    maxNumWaiting: 2,
    logitsProcessors: [{ className: lastingClassName, options: {} }],
  });
  const lasting = { maxTokens: 400, extraArgs: endless.vllm_xargs };
  for (const round of ["first", "second", "third"]) {
    const controllers = Array.from({ length: 4 }, () => new AbortController());
    const running = controllers.map(async ({ signal }, index) => {
      const outputs = engine.generate(ask(`${round}-${index}`, lasting), { signal });
      for await (const output of outputs) void output;
    });
    const ended = Promise.allSettled(running);
    // Both copies are busy in every round: none counts the requests of earlier ones.
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(2);
    await expect(tokensOf(engine, ask("one too many"))).rejects.toMatchObject({ code: "queue_full" });
    for (const controller of controllers) controller.abort();
    expect((await ended).map(({ status }) => status)).toEqual(controllers.map(() => "rejected"));
    await expect.poll(() => engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0 });
  }
  const after = await Promise.all([1, 2, 3, 4].map((index) => tokensOf(engine, ask(`after-${index}`))));
  expect(after.map(({ length }) => length)).toEqual([16, 16, 16, 16]);
});

test("a step that hangs ends the requests of its copy only", async () => {
  const className = `${new URL("./looping-processor.ts", import.meta.url).pathname}:Looping`;
  await using engine = await startEngine({
    dataParallelSize: 2,
    // So that the next request is computed by the other copy.
    maxNumSequences: 1,
    logitsProcessors: [{ className, options: {} }],
    stepTimeoutMs: 1000,
  });
  const [sign, otherSign] = [join(folder.path, "loop-ends"), join(folder.path, "other-loop-ends")];
  const looping = tokensOf(engine, ask("looping", { extraArgs: { loops_until: sign } }));
  looping.catch(() => undefined);
  await expect.poll(() => engine.state).toBe("stalled");
  expect(engine.stall).toMatchObject({ activity: "logits processor" });
  await expect(tokensOf(engine, ask("refused"))).rejects.toMatchObject({ code: "engine_stalled" });
  await expect(looping).rejects.toMatchObject({ code: "engine_stalled" });
  await writeFile(sign, "");
  await expect.poll(() => engine.state).toBe("ready");

  // Now with a request in the other copy, which goes on.
  const again = tokensOf(engine, ask("again", { extraArgs: { loops_until: otherSign } }));
  again.catch(() => undefined);
  const beside = tokensOf(engine, ask("beside", { maxTokens: 256 }));
  await expect(again).rejects.toMatchObject({ code: "engine_stalled" });
  expect(await beside).toHaveLength(256);
  await writeFile(otherSign, "");
  await expect.poll(() => engine.state).toBe("ready");
});

test("the death of a copy ends the requests of all, and the engine for good", async () => {
  const className = `${new URL("./exiting-processor.ts", import.meta.url).pathname}:Exiting`;
  await using engine = await startEngine({
    dataParallelSize: 2,
    maxNumSequences: 1,
    logitsProcessors: [{ className, options: {} }],
  });
  const [first, second] = [join(folder.path, "first-exits"), join(folder.path, "second-exits")];
  const running = [first, second].map((file, index) =>
    tokensOf(engine, ask(`request-${index}`, { maxTokens: 400, extraArgs: { exits_when: file } })),
  );
  const ended = Promise.allSettled(running);
  await expect.poll(() => engine.stats.numRequestsRunning).toBe(2);
  await writeFile(first, "");
  expect(await ended).toMatchObject(running.map(() => ({ status: "rejected", reason: { code: "internal" } })));
  expect(engine.state).toBe("failed");
  // The other copy, which is in its step, goes on, and ends too.
  await writeFile(second, "");
  await engine.close();
  expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
});

test.each<EngineOptions>([{ device: "webgpu" }, { device: "cuda" }, { visionDevice: "cuda" }])(
  "a GPU has one copy: %o",
  async (options) => {
    const engine = createEngine({ dataParallelSize: 2, ...options });
    await expect(engine.ready).rejects.toMatchObject({ code: "invalid_configuration", setting: "dataParallelSize" });
    await engine.close();
  },
);
