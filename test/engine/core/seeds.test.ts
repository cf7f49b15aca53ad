import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";

const numRequests = 12;

/** Everything that a draw can depend on, one by one. */
const shapes: readonly Partial<SamplingParams>[] = [
  { temperature: 1 },
  { temperature: 1.5, topP: 0.9 },
  { temperature: 0.8, topK: 20, minP: 0.02, logprobs: 3 },
  { temperature: 0 },
  { temperature: 1.2, frequencyPenalty: 0.5, repetitionPenalty: 1.2, logitBias: { 5: 3 } },
];

describe.for(["float32", "int8"] as const)("the shipped checkpoint in %s", (dtype) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel("fovea-shapes", cache.path, dtype);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  function requestOf(index: number): EngineRequest {
    const params = { maxTokens: 8 + (index % 5), ignoreEos: true, ...shapes[index % shapes.length] };
    return goldenRequest(`${index}`, golden.cases[index % golden.cases.length]!, golden.model, params, 4000 + index);
  }

  async function tokensInBatch(
    order: readonly number[],
    {
      maxNumSequences,
      maxNumBatchedTokens,
      stepsBetween,
    }: Readonly<Record<"maxNumSequences" | "maxNumBatchedTokens" | "stepsBetween", number>>,
  ): Promise<(readonly number[])[]> {
    using engine = await SteppedEngine.create(
      createWorkerOptions(golden.model, { dtype, maxNumSequences, maxNumBatchedTokens }),
    );
    for (const index of order) {
      engine.add(requestOf(index));
      for (let steps = 0; steps < stepsBetween; steps++) engine.step();
    }
    await engine.runToEnd();
    return Array.from({ length: numRequests }, (_, index) => engine.tokensOf(`${index}`));
  }

  const inOrder = Array.from({ length: numRequests }, (_, index) => index);

  test("draws the same tokens for a seed alone and in every batch composition", async () => {
    const alone = await tokensInBatch(inOrder, { maxNumSequences: 1, maxNumBatchedTokens: 512, stepsBetween: 0 });
    const reversed = inOrder.toReversed();
    const compositions = [
      { order: inOrder, maxNumSequences: 2, maxNumBatchedTokens: 512, stepsBetween: 0 },
      { order: reversed, maxNumSequences: 5, maxNumBatchedTokens: 64, stepsBetween: 3 },
      { order: reversed, maxNumSequences: 12, maxNumBatchedTokens: 512, stepsBetween: 0 },
      { order: inOrder, maxNumSequences: 12, maxNumBatchedTokens: 100, stepsBetween: 1 },
    ];
    for (const { order, ...limits } of compositions) expect(await tokensInBatch(order, limits)).toEqual(alone);
    expect(new Set(alone.map(String)).size).toBeGreaterThan(numRequests / 2);
  });
});
