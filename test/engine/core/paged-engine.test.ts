/** Engine cores over a paged KV cache: preemption, and prefixes that sequences share block by block. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { continuationOf, expectSameTokens } from "./conversations.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { expectSameAnswers, mixedRequest } from "./mixed-requests.ts";

const blockSize = 8;
/** More than the longest recorded prompt has. */
const maxModelLen = 192;
/** The fewest: one sequence of full length, and the scratch block. */
const fewestBlocks = maxModelLen / blockSize + 1;

describe.for(["llama", "mistral", "qwen3.5", "lfm3", "llava-default"] as const)("%s", (name) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path, "float32", { kind: "paged", blockSize });
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  const createEngine = (overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
    SteppedEngine.create({ ...createWorkerOptions(golden.model, overrides), maxModelLen });

  const requestOf = (index: number): EngineRequest => mixedRequest(golden, index, 16 + (index % 4) * 8);

  test.for([7, 64])("preempted sequences give the answers of an ample pool, with %i tokens a step", async (budget) => {
    using ample = await createEngine();
    using scarce = await createEngine({ numBlocks: fewestBlocks, maxNumBatchedTokens: budget });
    for (const engine of [ample, scarce]) {
      for (let index = 0; index < 15; index++) engine.add(requestOf(index));
      await engine.runToEnd();
    }
    expect(ample.stats.numPreemptions).toBe(0);
    expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
    expect(scarce.stats).toMatchObject({ kvCacheUsage: 0, kvCapacity: { blockSize, numBlocks: fewestBlocks } });
    expectSameAnswers(scarce, ample, Array(15).keys());
    const { numPromptTokens, numGenerationTokens } = ample.stats;
    expect(scarce.stats).toMatchObject({ numPromptTokens, numGenerationTokens });
  });

  test("equal prompts that come together share the blocks of the first", async () => {
    using engine = await createEngine({ maxNumBatchedTokens: 24 });
    const prompt = goldenRequest("", golden.cases[0]!, golden.model, { maxTokens: 4 });
    const promptTokenIds = [...prompt.promptTokenIds, ...Array.from({ length: 60 }, (_, index) => 5 + index)];
    for (let index = 0; index < 6; index++) engine.add({ ...prompt, requestId: `${index}`, promptTokenIds });
    await engine.runToEnd();
    const wholeBlocks = (numTokens: number): number => Math.floor(numTokens / blockSize) * blockSize;
    // States are kept 16 tokens before the end.
    const numShared = wholeBlocks(promptTokenIds.length - (name === "qwen3.5" || name === "lfm3" ? 16 : 1));
    for (let index = 1; index < 6; index++) {
      expect(engine.tokensOf(`${index}`)).toEqual(engine.tokensOf("0"));
      expect(engine.generations.get(`${index}`)!.outputs[0]!.numCachedTokens).toBe(numShared);
    }
  });

  test("random conversations get the tokens of an engine without reuse", async () => {
    const turn = fc.record({
      base: fc.nat(12),
      numKept: fc.integer({ min: 1, max: 130 }),
      added: fc.array(fc.integer({ min: 3, max: 40 }), { minLength: 1, maxLength: 12 }),
      maxTokens: fc.integer({ min: 1, max: 40 }),
      salt: fc.constantFrom(null, null, null, "salt"),
      numSteps: fc.nat(3),
      isAborted: fc.nat(5).map((value) => value === 0),
    });
    const pool = fc.record({
      numBlocks: fc.constantFrom(fewestBlocks, fewestBlocks + 5, 100),
      maxNumBatchedTokens: fc.constantFrom(5, 16, 200),
      maxNumSequences: fc.constantFrom(1, 3, 8),
    });
    let numPreemptions = 0;
    let numHits = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 6, maxLength: 12 }), pool, async (turns, overrides) => {
        using reference = await createEngine({ enablePrefixCaching: false });
        using engine = await createEngine(overrides);
        await expectSameTokens(
          { engine, reference },
          turns,
          ({ base, numKept, added, maxTokens, salt }, index, earlier) => {
            const recorded = golden.cases[base % golden.cases.length]!;
            const fresh = goldenRequest(`${index}`, recorded, golden.model, { maxTokens });
            const from = earlier[base] ?? fresh;
            const answer = from === fresh ? [] : reference.tokensOf(from.requestId);
            return { ...fresh, ...continuationOf(from, answer, numKept, added), cacheSalt: salt };
          },
        );
        numPreemptions += engine.stats.numPreemptions;
        numHits += engine.stats.numPrefixCacheHits;
      }),
      { numRuns: 25, seed: 11 },
    );
    expect(numPreemptions).toBeGreaterThan(0);
    expect(numHits).toBeGreaterThan(0);
  });
});

test("tokens drawn from candidates are those that slots draw from whole rows", async () => {
  await using cache = await createTemporaryFolder();
  /** Nothing besides the candidates decides these draws. */
  const shapes: readonly Partial<SamplingParams>[] = [
    { temperature: 0 },
    { temperature: 1.4 },
    { temperature: 1, topK: 20 },
    { temperature: 1.3, topP: 0.5 },
    { temperature: 0.4, minP: 0.05 },
    { temperature: 1.3, topK: 40, topP: 0.9, minP: 0.02 },
  ];
  const answers: (readonly number[])[][] = [];
  for (const kvLayout of [{ kind: "slots" }, { kind: "paged", blockSize }] as const) {
    const { model, cases } = await buildGoldenModel("llama", cache.path, "float32", kvLayout);
    using engine = await SteppedEngine.create({ ...createWorkerOptions(model), maxModelLen });
    for (let index = 0; index < 24; index++) {
      const params = { maxTokens: 40, ignoreEos: true, ...shapes[index % shapes.length] };
      engine.add(goldenRequest(`${index}`, cases[index % cases.length]!, model, params, 70 + index));
    }
    await engine.runToEnd();
    expect(engine.stats.numGenerationTokens).toBe(24 * 40);
    answers.push(Array.from({ length: 24 }, (_, index) => engine.tokensOf(`${index}`)));
    expect(model.decoder.vocabSize).toBeGreaterThan(64);
  }
  expect(answers[1]).toEqual(answers[0]);
  expect(new Set(answers[0]!.flat()).size).toBeGreaterThan(30);
});

describe("recurrent states in blocks", () => {
  const filler = (seed: number, length: number): number[] =>
    Array.from({ length }, (_, index) => 5 + ((seed * 31 + index * 7) % 40));

  test("the third prompt with a shared start continues from its snapshot, until the block is evicted", async () => {
    await using cache = await createTemporaryFolder();
    const { model, cases } = await buildGoldenModel("qwen3.5", cache.path, "float32", { kind: "paged", blockSize });
    const createEngine = (overrides: Partial<EngineConfig>): Promise<SteppedEngine> =>
      SteppedEngine.create({ ...createWorkerOptions(model, overrides), maxModelLen });
    using reference = await createEngine({ enablePrefixCaching: false });
    using engine = await createEngine({ maxNumSequences: 2, numBlocks: fewestBlocks });
    const shared = filler(0, 48);
    const generate = async (requestId: string, promptTokenIds: number[]): Promise<number> => {
      const prompt = goldenRequest(requestId, cases[0]!, model, { maxTokens: 6, ignoreEos: true });
      for (const each of [reference, engine]) {
        each.add({ ...prompt, images: [], promptTokenIds });
        await each.runToEnd();
      }
      expect(engine.tokensOf(requestId)).toEqual(reference.tokensOf(requestId));
      return engine.generations.get(requestId)!.outputs[0]!.numCachedTokens;
    };
    // The first prompt has a snapshot after 72 tokens, near its end; the second one takes another where it branches off.
    expect(await generate("first", [...shared, ...filler(1, 40)])).toBe(0);
    expect(await generate("second", [...shared, ...filler(2, 40)])).toBe(0);
    expect(await generate("third", [...shared, ...filler(3, 40)])).toBe(48);
    // Takes all blocks.
    expect(await generate("long", filler(4, maxModelLen - 7))).toBe(0);
    expect(await generate("evicted", [...shared, ...filler(3, 40)])).toBe(0);
    expect(engine.stats.numPrefixCacheHits).toBe(48);
  });
});

test("a pool that one sequence does not fit into is rejected with the length that would fit", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize });
  const options = createWorkerOptions(model, { numBlocks: 9 });
  await expect(SteppedEngine.create({ ...options, maxModelLen })).rejects.toThrow(
    "The KV cache of 9 blocks of 8 tokens has no room for one sequence of 192 tokens. A sequence of 64 tokens would fit.",
  );
});
