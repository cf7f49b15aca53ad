/** Engine cores whose KV slots share less memory than they would take at full length. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { planSlotBlocksOf } from "../../../engine/kv/plan-slot-blocks.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { continuationOf, expectSameTokens } from "./conversations.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { expectSameAnswers, mixedRequest } from "./mixed-requests.ts";

const maxNumSequences = 8;

const maxModelLen = 512;

/** Builds the model before the tests of a suite, and removes it after them. */
function setUpModel(name: "llama" | "qwen3.5" | "lfm3" | "llava-default") {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  return {
    golden: (): GoldenModel => golden,

    createEngine: (overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
      SteppedEngine.create(createWorkerOptions(golden.model, { maxNumSequences, ...overrides })),

    /** The least memory in which so many slots share blocks, and `numMore` blocks. */
    scarceBytes: (numSlots: number, numMore = 0): number => {
      const { config } = createWorkerOptions(golden.model, { maxNumSequences: numSlots });
      const { decoder } = golden.model;
      const planFor = (kvCacheMemoryBytes: number) =>
        planSlotBlocksOf({ ...config, kvCacheMemoryBytes }, decoder, maxModelLen);
      let fewest = 4096;
      while (planFor(fewest)?.numSlots !== numSlots) fewest += 4096;
      const { capacity, totalBytes } = planFor(fewest)!;
      return fewest + numMore * Math.ceil(totalBytes / capacity.numBlocks);
    },
  };
}

describe.for(["llama", "qwen3.5", "lfm3", "llava-default"] as const)("%s", (name) => {
  const { golden, createEngine, scarceBytes } = setUpModel(name);

  const requestOf = (index: number): EngineRequest => mixedRequest(golden(), index, 60 + (index % 4) * 50);

  test.for([11, 64])("preempted sequences give the answers of ample memory, with %i tokens a step", async (budget) => {
    using ample = await createEngine();
    using scarce = await createEngine({
      kvCacheMemoryBytes: scarceBytes(maxNumSequences),
      maxNumBatchedTokens: budget,
    });
    for (const engine of [ample, scarce]) {
      for (let index = 0; index < 15; index++) engine.add(requestOf(index));
      await engine.runToEnd();
    }
    expect(ample.stats.numPreemptions).toBe(0);
    expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
    expect(scarce.stats.kvCacheUsage).toBe(0);
    expect(scarce.stats.kvCapacity.numTokens).toBeLessThan(maxNumSequences * maxModelLen);
    expectSameAnswers(scarce, ample, Array(15).keys());
    const { numPromptTokens, numGenerationTokens } = ample.stats;
    expect(scarce.stats).toMatchObject({ numPromptTokens, numGenerationTokens });
  });

  test("output that is computed again token by token gives the same answers", async () => {
    using ample = await createEngine();
    const { config, ...options } = createWorkerOptions(golden().model, {
      maxNumSequences,
      kvCacheMemoryBytes: scarceBytes(maxNumSequences),
      enablePrefixCaching: false,
    });
    const model = { ...golden().model, decoder: { ...golden().model.decoder, widensPrompts: true } };
    using scarce = await SteppedEngine.create({ ...options, config, model });
    for (const engine of [ample, scarce]) {
      // With their images known, all of them run at once and memory gets scarce.
      await engine.encodeImages(golden());
      for (let index = 0; index < 10; index++) engine.add(requestOf(index));
      await engine.runToEnd();
    }
    expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
    expectSameAnswers(scarce, ample, Array(10).keys());
  });

  test("random conversations get the tokens of an engine without reuse", async () => {
    const turn = fc.record({
      base: fc.nat(12),
      numKept: fc.integer({ min: 1, max: 250 }),
      added: fc.array(fc.integer({ min: 3, max: 40 }), { minLength: 1, maxLength: 30 }),
      maxTokens: fc.constantFrom(1, 20, 90, 180),
      salt: fc.constantFrom(null, null, null, "salt"),
      numSteps: fc.nat(2),
      isAborted: fc.nat(5).map((value) => value === 0),
    });
    const pool = fc.record({
      numMoreBlocks: fc.constantFrom(0, 0, 5),
      maxNumBatchedTokens: fc.constantFrom(14, 200),
      maxNumSequences: fc.constantFrom(3, 8, 13),
    });
    let numPreemptions = 0;
    let numHits = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 8, maxLength: 14 }), pool, async (turns, settings) => {
        const { numMoreBlocks, ...overrides } = settings;
        const kvCacheMemoryBytes = scarceBytes(overrides.maxNumSequences, numMoreBlocks);
        using reference = await createEngine({ enablePrefixCaching: false });
        using engine = await createEngine({ ...overrides, kvCacheMemoryBytes });
        await expectSameTokens(
          { engine, reference },
          turns,
          ({ base, numKept, added, maxTokens, salt }, index, earlier) => {
            const recorded = golden().cases[base % golden().cases.length]!;
            const fresh = goldenRequest(`${index}`, recorded, golden().model, { maxTokens });
            const from = earlier[base] ?? fresh;
            const answer = from === fresh ? [] : reference.tokensOf(from.requestId);
            return { ...fresh, ...continuationOf(from, answer, numKept, added), cacheSalt: salt };
          },
        );
        numPreemptions += engine.stats.numPreemptions;
        numHits += engine.stats.numPrefixCacheHits;
      }),
      { numRuns: 8, seed: 11 },
    );
    expect(numPreemptions).toBeGreaterThan(0);
    expect(numHits).toBeGreaterThan(0);
  });
});

describe("llava-default with pictures", () => {
  const { golden, createEngine, scarceBytes } = setUpModel("llava-default");

  test("pictures behind a shared text give the answers of ample memory", async () => {
    const { model, cases } = golden();
    const pictured = cases.find(({ pictures }) => pictures.length === 1)!;
    const [image] = goldenRequest("", pictured, model).images;
    const shared = Array.from({ length: 200 }, (_, index) => 5 + (index % 40));
    const features = Array.from({ length: image!.placeholder.length }, () => model.imageTokenId!);
    const ask = (index: number, promptTokenIds: readonly number[], images: EngineRequest["images"] = []) => ({
      ...goldenRequest(`${index}`, pictured, model, { maxTokens: 120, ignoreEos: true, logprobs: 0 }),
      promptTokenIds,
      images,
    });
    const pictures = [1, 2, 3].map((index) => {
      const placeholder = { ...image!.placeholder, offset: shared.length };
      return ask(index, [...shared, ...features, 40 + index], [{ ...image!, mmHash: `${index}`, placeholder }]);
    });
    const texts = [4, 5, 6, 7].map((index) =>
      ask(
        index,
        Array.from({ length: 180 }, (_, place) => 5 + ((place * index) % 90)),
      ),
    );
    using ample = await createEngine();
    using scarce = await createEngine({ kvCacheMemoryBytes: scarceBytes(maxNumSequences) });
    for (const engine of [ample, scarce]) {
      engine.add(ask(0, [...shared, 6]));
      engine.step();
      for (const request of [...pictures, ...texts]) engine.add(request);
      await engine.runToEnd();
    }
    expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
    expectSameAnswers(scarce, ample, Array(8).keys());
  });
});
