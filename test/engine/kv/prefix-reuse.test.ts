import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { continuationOf, expectSameTokens } from "../core/conversations.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";
import type { GoldenModel } from "../core/golden-engine.ts";

const checkpoints = [
  "llama",
  "qwen2",
  "qwen3",
  "llava-default",
  "llava-full",
  "onnx-exports/llama",
  "onnx-exports/llava",
] as const;

describe.for(checkpoints)("%s", (name) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  const createEngine = (overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
    SteppedEngine.create(createWorkerOptions(golden.model, overrides));

  function numCachedOf(engine: SteppedEngine, requestId: string): number | undefined {
    return engine.generations.get(requestId)!.outputs.at(-1)?.numCachedTokens;
  }

  test.for([7, 512])("repeated prompts get the reference's tokens, with %i tokens a step", async (budget) => {
    using engine = await createEngine({ maxNumBatchedTokens: budget });
    for (const turn of ["first", "second"]) {
      for (const recorded of golden.cases) {
        const requestId = `${recorded.name} ${turn}`;
        engine.add(goldenRequest(requestId, recorded, golden.model));
        await engine.runToEnd();
        expect(engine.tokensOf(requestId)).toEqual(recorded.greedyTokenIds);
      }
    }
    for (const { name: caseName, promptTokenIds } of golden.cases) {
      expect(numCachedOf(engine, `${caseName} second`)).toBe(promptTokenIds.length - 1);
    }
  });

  test("the next turn of a conversation computes the new tokens and one more", async () => {
    using engine = await createEngine();
    const recorded = golden.cases[0]!;
    const first = goldenRequest("first", recorded, golden.model);
    engine.add(first);
    await engine.runToEnd();
    const numTokens = recorded.promptTokenIds.length + recorded.greedyTokenIds.length;
    const turn = continuationOf(first, recorded.greedyTokenIds, numTokens, [5, 6, 7]);
    engine.add({ ...first, requestId: "second", ...turn });
    await engine.runToEnd();
    // The answer's last token was sampled, but nothing was computed after it.
    expect(numCachedOf(engine, "second")).toBe(numTokens - 1);
    expect(engine.stats).toMatchObject({
      numPrefixCacheQueries: recorded.promptTokenIds.length + numTokens + 3,
      numPrefixCacheHits: numTokens - 1,
    });
    using withoutReuse = await createEngine({ enablePrefixCaching: false });
    withoutReuse.add({ ...first, requestId: "second", ...turn });
    await withoutReuse.runToEnd();
    expect(engine.tokensOf("second")).toEqual(withoutReuse.tokensOf("second"));
  });

  test("equal prompts that arrive together are computed once", async () => {
    using engine = await createEngine({ maxNumBatchedTokens: 64 });
    const prompt = goldenRequest("", golden.cases[0]!, golden.model);
    const promptTokenIds = [...prompt.promptTokenIds, ...Array.from({ length: 20 }, (_, index) => 5 + index)];
    for (let index = 0; index < 6; index++) engine.add({ ...prompt, requestId: `${index}`, promptTokenIds });
    await engine.runToEnd();
    for (let index = 1; index < 6; index++) {
      expect(engine.tokensOf(`${index}`)).toEqual(engine.tokensOf("0"));
      expect(numCachedOf(engine, `${index}`)).toBe(promptTokenIds.length - 1);
    }
  });

  test("a kept prefix is unchanged after others have decoded around it", async () => {
    const requestOf = (requestId: string, index: number, maxTokens: number): EngineRequest =>
      goldenRequest(requestId, golden.cases[index % golden.cases.length]!, golden.model, { maxTokens });
    const left = { ...requestOf("left", 0, 20), cacheSalt: "left" };
    const recorded = requestOf("kept", 1, 1);
    // Unused rows compute token 0, with which the recorded prompts start. It must differ here to be visible.
    const kept = { ...recorded, promptTokenIds: [9, ...recorded.promptTokenIds.slice(1)] };
    const right = { ...requestOf("right", 2, 20), cacheSalt: "right" };
    const turn = { ...kept, requestId: "turn", samplingParams: { ...left.samplingParams, logprobs: 2 } };
    using engine = await createEngine();
    for (const request of [left, kept, right]) engine.add(request);
    await engine.runToEnd();
    using withoutReuse = await createEngine({ enablePrefixCaching: false });
    for (const one of [engine, withoutReuse]) {
      one.add(turn);
      await one.runToEnd();
    }
    expect(numCachedOf(engine, "turn")).toBe(kept.promptTokenIds.length - 1);
    const logprobsOf = (one: SteppedEngine): number[] =>
      one.generations.get("turn")!.outputs.flatMap(({ logprobs }) => logprobs!.map(({ sampled }) => sampled.logprob));
    const expected = logprobsOf(withoutReuse);
    for (const [index, logprob] of logprobsOf(engine).entries()) expect(logprob).toBeCloseTo(expected[index]!, 4);
  });

  test("random conversations with turns, branches, aborts and evictions get the same tokens as without reuse", async () => {
    const turn = fc.record({
      /** Below the number of requests so far: the one to continue; otherwise a recorded prompt. */
      base: fc.nat(24),
      /** Percentage of the base's tokens that is kept. */
      kept: fc.constantFrom(30, 60, 90, 100, 100, 100),
      added: fc.array(fc.integer({ min: 3, max: 40 }), { minLength: 1, maxLength: 20 }),
      maxTokens: fc.integer({ min: 1, max: 12 }),
      salt: fc.constantFrom(null, null, null, "salt"),
      wantsPromptLogprobs: fc.nat(9).map((value) => value === 0),
      numSteps: fc.nat(8),
      isAborted: fc.nat(5).map((value) => value === 0),
    });
    const budgets = fc.constantFrom(5, 16, 200);
    const numSlots = fc.constantFrom(1, 3, 6, 12);
    const { model, cases } = golden;
    await fc.assert(
      fc.asyncProperty(
        fc.array(turn, { minLength: 8, maxLength: 24 }),
        budgets,
        numSlots,
        async (turns, budget, slots) => {
          using reference = await createEngine({ enablePrefixCaching: false });
          using engine = await createEngine({ maxNumBatchedTokens: budget, maxNumSequences: slots });
          await expectSameTokens(
            { engine, reference },
            turns,
            ({ base, kept, added, maxTokens, salt, wantsPromptLogprobs }, index, earlier) => {
              const params = { maxTokens, promptLogprobs: wantsPromptLogprobs ? 0 : null };
              const fresh = goldenRequest(`${index}`, cases[base % cases.length]!, model, params);
              const from = earlier[base] ?? fresh;
              const answer = from === fresh ? [] : reference.tokensOf(from.requestId);
              const numKept = Math.floor(((from.promptTokenIds.length + answer.length) * kept) / 100);
              return { ...fresh, ...continuationOf(from, answer, Math.min(numKept, 300), added), cacheSalt: salt };
            },
          );
          for (const [index, { wantsPromptLogprobs }] of turns.entries()) {
            expect(wantsPromptLogprobs ? numCachedOf(engine, `${index}`) : 0).toBe(0);
          }
        },
      ),
      { numRuns: 25, seed: 20 },
    );
  });
});

test("prompts with equal tokens and different images reuse nothing from the first image on", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("llava-default", cache.path);
  const pictures = new Map(
    cases.flatMap((recorded) => goldenRequest("", recorded, model).images.map((image) => [image.mmHash, image])),
  );
  const [first, other] = pictures.values();
  const recorded = cases.find(
    (candidate) => candidate.pictures.length === 1 && candidate.pictures[0] === first!.mmHash,
  )!;
  const request = goldenRequest("first", recorded, model);
  const images = [{ ...other!, placeholder: request.images[0]!.placeholder }];
  using engine = await SteppedEngine.create(createWorkerOptions(model));
  using withoutReuse = await SteppedEngine.create(createWorkerOptions(model, { enablePrefixCaching: false }));
  engine.add(request);
  await engine.runToEnd();
  for (const one of [engine, withoutReuse]) {
    one.add({ ...request, requestId: "other", images });
    await one.runToEnd();
  }
  const outputs = engine.generations.get("other")!.outputs;
  expect(outputs[0]!.numCachedTokens).toBeLessThanOrEqual(request.images[0]!.placeholder.offset);
  expect(engine.tokensOf("other")).toEqual(withoutReuse.tokensOf("other"));
  expect(engine.tokensOf("other")).not.toEqual(engine.tokensOf("first"));
});
