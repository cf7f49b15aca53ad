/** Engine cores over a device that has no memory for a step: its sequences are preempted, or end if they are alone. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { expectSameAnswers, mixedRequest } from "./mixed-requests.ts";
import { withRoomFor, withRoomForImage } from "./scarce-memory.ts";

const maxModelLen = 256;
const numRequests = 8;

const warnings: string[] = [];
const onWarning = ({ message }: Error): void => void warnings.push(message);
beforeEach(() => void process.on("warning", onWarning));
afterEach(() => {
  process.off("warning", onWarning);
  warnings.length = 0;
});

describe.for([
  ["paged", "llama"],
  ["paged", "qwen3.5"],
  ["paged", "llava-default"],
  ["slots", "llama"],
  ["slots", "qwen3.5"],
] as const)("%s: %s", ([kind, name]) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    const layout = kind === "paged" ? ({ kind, blockSize: 8 } as const) : ({ kind } as const);
    golden = await buildGoldenModel(name, cache.path, "float32", layout);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  const createEngine = ({ model }: GoldenModel, overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
    SteppedEngine.create({ ...createWorkerOptions(model, overrides), maxModelLen });

  const requestOf = (index: number): EngineRequest => mixedRequest(golden, index, 12 + (index % 4) * 8);

  async function runAll(engine: SteppedEngine): Promise<void> {
    for (let index = 0; index < numRequests; index++) engine.add(requestOf(index));
    await engine.runToEnd();
  }

  test.for([
    { room: { numTokens: 9 }, enablePrefixCaching: true },
    { room: { numTokens: 9 }, enablePrefixCaching: false },
    { room: { numSequences: 2 }, enablePrefixCaching: true },
    { room: { numSequences: 1, numTokens: 3 }, enablePrefixCaching: true },
  ])(
    "a step without memory is computed in smaller ones: $room, reuse: $enablePrefixCaching",
    async ({ room, enablePrefixCaching }) => {
      using ample = await createEngine(golden);
      using scarce = await createEngine(await withRoomFor(golden, room, cache.path), { enablePrefixCaching });
      for (const engine of [ample, scarce]) await runAll(engine);
      expect(ample.stats.numPreemptions).toBe(0);
      expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
      expectSameAnswers(scarce, ample, Array(numRequests).keys());
      const { numPromptTokens, numGenerationTokens } = ample.stats;
      expect(scarce.stats).toMatchObject({ numPromptTokens, numGenerationTokens, kvCacheUsage: 0 });
      await expect.poll(() => warnings[0]).toContain("The device had no memory for a step (tokens: ");
    },
  );

  test("a sequence that does not fit into memory alone ends with an error, and the others continue", async () => {
    // Before its last run. In the slot form, the input is the index of the newest token.
    const lengths = Array.from({ length: numRequests }, (_, index) => {
      const { promptTokenIds, samplingParams } = requestOf(index);
      return promptTokenIds.length + samplingParams.maxTokens! - (kind === "paged" ? 2 : 1);
    });
    const numPastTokens = lengths.toSorted((left, right) => left - right)[numRequests / 2]!;
    using ample = await createEngine(golden);
    using scarce = await createEngine(await withRoomFor(golden, { numPastTokens }, cache.path));
    for (const engine of [ample, scarce]) await runAll(engine);
    const fits = (index: number): boolean => lengths[index]! <= numPastTokens;
    const indexes = [...lengths.keys()];
    expectSameAnswers(scarce, ample, indexes.filter(fits));
    const ended = indexes.filter((index) => !fits(index));
    for (const index of ended) {
      expect(scarce.errorOf(`${index}`)).toEqual({
        code: "out_of_memory",
        message: expect.stringMatching(
          /^The device has too little memory for this request, which has \d+ tokens, even if it is computed alone\. Send a/,
        ),
      });
      const tokenIds = scarce.tokensOf(`${index}`);
      expect(tokenIds).toEqual(ample.tokensOf(`${index}`).slice(0, tokenIds.length));
    }
    expect(ended.length).toBeGreaterThan(0);
    expect(ended.length).toBeLessThan(numRequests);
    await expect.poll(() => warnings.join(" ")).toMatch(/for request \d+ alone\. .*CUDA failure 2: out of memory/);
    expect(scarce.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  });
});

test.for([
  { layout: { kind: "slots" }, encodesInBackground: false },
  { layout: { kind: "paged", blockSize: 8 }, encodesInBackground: false },
  { layout: { kind: "paged", blockSize: 8 }, encodesInBackground: true },
] as const)("a picture for which there is no memory ends its request, and no other one: %o", async (options) => {
  await using cache = await createTemporaryFolder();
  const golden = await buildGoldenModel("llava-default", cache.path, "float32", options.layout);
  const { model, cases } = await withRoomForImage(golden, 8, cache.path);
  const { encodesInBackground } = options;
  using engine = await SteppedEngine.create({ ...createWorkerOptions(model), encodesInBackground });
  const withPicture = cases.find(({ pictures }) => pictures.length > 0)!;
  const withoutPicture = cases.find(({ pictures }) => pictures.length === 0)!;
  engine.add(goldenRequest("text", withoutPicture, model));
  engine.add(goldenRequest("picture", withPicture, model));
  await engine.runToEnd();
  expect(engine.errorOf("picture")).toEqual({
    code: "out_of_memory",
    message: expect.stringMatching(/^The device has too little memory for this request, .* or smaller images\.$/),
  });
  engine.add(goldenRequest("later", withoutPicture, model));
  await engine.runToEnd();
  for (const requestId of ["text", "later"]) expect(engine.tokensOf(requestId)).toEqual(withoutPicture.greedyTokenIds);
  expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  await expect.poll(() => warnings.join(" ")).toMatch(/for request picture alone\. .*CUDA failure 2: out of memory/);
});
