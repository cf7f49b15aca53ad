/** Requests whose sampling parameters differ, and everything that their callers see of the answers. */
import { expect } from "vitest";

import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { goldenRequest } from "./golden-engine.ts";
import type { GoldenModel, SteppedEngine } from "./golden-engine.ts";

/** Together they use everything that the next token may depend on. */
const shapes: readonly Partial<SamplingParams>[] = [
  { temperature: 1, logprobs: 2 },
  { temperature: 0 },
  { temperature: 1.2, topK: 20, minP: 0.02, frequencyPenalty: 0.5, repetitionPenalty: 1.2 },
  { temperature: 0.7, topP: 0.9, minTokens: 12, logitBias: { 5: 3 } },
  { temperature: 0, promptLogprobs: 1 },
];

/** A recorded prompt with one of the shapes, both by index, which is also the id and part of the seed. */
export function mixedRequest({ cases, model }: GoldenModel, index: number, maxTokens: number): EngineRequest {
  const params = { maxTokens, ignoreEos: true, ...shapes[index % shapes.length] };
  return goldenRequest(`${index}`, cases[index % cases.length]!, model, params, 900 + index);
}

/** Everything that a caller sees of the request, apart from how it was cut into steps. */
function answerOf(engine: SteppedEngine, requestId: string): unknown {
  const { tokenIds, outputs } = engine.generations.get(requestId)!;
  const round = (logprob: number): number => Math.round(logprob * 1000);
  return {
    tokenIds,
    finishReason: outputs.at(-1)?.finishReason,
    logprobs: outputs.map(({ logprobs }) => logprobs?.map(({ sampled }) => round(sampled.logprob)) ?? null),
    promptLogprobs: outputs.map(({ promptLogprobs }) => promptLogprobs?.length ?? null),
  };
}

/** Both engines answered the requests of these indexes alike. */
export function expectSameAnswers(engine: SteppedEngine, expected: SteppedEngine, indexes: Iterable<number>): void {
  for (const index of indexes) {
    expect(expected.tokensOf(`${index}`)).not.toEqual([]);
    expect(answerOf(engine, `${index}`)).toEqual(answerOf(expected, `${index}`));
  }
}
