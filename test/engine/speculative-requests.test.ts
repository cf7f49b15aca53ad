/** Requests about pictures to the shipped checkpoint, with drafts and without. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, SamplingParams } from "../../engine/index.ts";
import { inspectCheckpoint } from "../../engine/inspection/inspect-checkpoint.ts";
import { smallEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const model = fileURLToPath(new URL("../../models/fovea-shapes", import.meta.url));
const speculativeConfig = { method: "ngram", numSpeculativeTokens: 4, promptLookupMax: 3, promptLookupMin: 1 } as const;

let cache: TemporaryFolder;
let numRequests = 0;

beforeAll(async () => {
  cache = await createTemporaryFolder();
});

afterAll(() => cache[Symbol.asyncDispose]());

async function answersOf(engine: Engine, params: Partial<SamplingParams>, numSequences = 1): Promise<unknown[]> {
  const picture = await readFile(join(model, "examples/scene.png"), "base64");
  const image = { type: "image" as const, reference: `data:image/png;base64,${picture}` };
  const messages = [
    { role: "user" as const, content: [image, { type: "text" as const, text: "Describe the picture." }] },
  ];
  const texts: string[] = [];
  const ends: unknown[] = [];
  const outputs = engine.generate({
    requestId: `request-${numRequests++}`,
    prompt: { kind: "chat", messages, addGenerationPrompt: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 80, ...params }),
    numChoices: numSequences,
  });
  for await (const { index, text, finishReason, stopReason } of outputs) {
    texts[index] = (texts[index] ?? "") + text;
    if (finishReason !== null) ends[index] = { text: texts[index], finishReason, stopReason };
  }
  return ends;
}

const cases: readonly (readonly [name: string, params: Partial<SamplingParams>, numSequences?: number])[] = [
  ["greedy", {}],
  ["two choices drawn with a seed", { temperature: 1.2, seed: 5 }, 2],
  ["a stop string in the middle", { stop: ["yellow st"] }],
  ["a stop string that is kept", { stop: ["blue"], includeStopStringInOutput: true }],
  ["a grammar", { structuredOutput: { kind: "regex", pattern: "(A large red circle, ){1,6}and a star" } }],
  ["few tokens", { maxTokens: 3 }],
  ["forbidden words", { badWords: [" yellow"] }],
  ["no end", { ignoreEos: true, maxTokens: 60 }],
];

describe.for(["float32", "int8"] as const)("in %s", (dtype) => {
  let without: Engine;
  let drafting: Engine;

  beforeAll(async () => {
    const config = { ...smallEngineConfig(model, cache.path), dtype, maxNumSequences: 2 };
    const imageSources = [createDataUrlImageSource()];
    without = createEngine(config, { imageSources });
    drafting = createEngine({ ...config, speculativeConfig }, { imageSources });
    await Promise.all([without.ready, drafting.ready]);
  });

  afterAll(() => Promise.all([without.close(), drafting.close()]));

  test.for(cases)("%s: the same answer", async ([, params, numSequences]) => {
    const expected = await answersOf(without, params, numSequences);
    expect(expected).toHaveLength(numSequences ?? 1);
    expect(await answersOf(drafting, params, numSequences)).toEqual(expected);
  });

  test("some drafts were right and some wrong", () => {
    const { numDraftTokens, numAcceptedTokens } = drafting.stats.drafts;
    expect(numAcceptedTokens).toBeGreaterThan(0);
    expect(numDraftTokens).toBeGreaterThan(numAcceptedTokens);
  });
});

test.for([
  [{ model: "lfm2" }, /recurrent states cannot be taken back/],
  [{ model: "qwen3.5" }, /recurrent states cannot be taken back/],
  [{ model: "qwen3.5", kvLayout: "paged" }, /recurrent states cannot be taken back/],
  [{ model: "llama", dtype: "int4", promptDtype: "int8" }, /choose the prompt dtype "model"/],
  [{ model: "onnx-exports/llama" }, /ready-made ONNX export/],
] as const)(
  "a model that cannot check drafts, %o, is refused with the setting, also by check",
  async ([overrides, message]) => {
    const folder = fileURLToPath(new URL(`../fixtures/goldens/${overrides.model}`, import.meta.url));
    const config = { ...smallEngineConfig(folder, cache.path), ...overrides, model: folder, speculativeConfig };
    const rejection = {
      code: "invalid_configuration",
      message: expect.stringMatching(message) as unknown,
      setting: "speculativeConfig",
    };
    await expect(inspectCheckpoint(config, {}, new AbortController().signal)).rejects.toMatchObject(rejection);
    const engine = createEngine(config, { imageSources: [] });
    await expect(engine.ready).rejects.toMatchObject(rejection);
    await engine.close();
  },
);

test("an argument out of its range is refused by name", () => {
  const parameter = "samplingParams.extraArgs.prompt_lookup_num_tokens";
  for (const value of [17, -1, 1.5, "4", true]) {
    expect(() => createSamplingParams({ extraArgs: { prompt_lookup_num_tokens: value } })).toThrow(
      expect.objectContaining({ code: "invalid_argument", parameter }),
    );
  }
});
