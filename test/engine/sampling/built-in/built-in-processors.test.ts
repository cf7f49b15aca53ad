/**
 * Expected values were computed with NumPy, in float32 where the engine computes in float32:
 *
 *     f = np.float32; l = np.array([2, -1, .5, 3, -.25, 1.7], f); prompt = [0, 1]; out = [3, 3, 1, 4]
 *     def penalise(l, rep, freq, pres):
 *         for t in set(prompt) | set(out): l[t] = l[t] / f(rep) if l[t] > 0 else l[t] * f(rep)
 *         counts = np.bincount(out, minlength=6).astype(f)
 *         return (l - f(freq) * counts) - f(pres) * (counts > 0)
 *     x = np.array([2, 1, .1, -1, .5, 1.9]); p = softmax(x / .7); q = np.where(p >= .1 * p.max(), p, 0); q / q.sum()
 *     q = np.where(x >= np.sort(x)[-3], p, 0); q /= q.sum()        # top-k 3
 *     keep while np.cumsum of the sorted q before a token is below .8, renormalise        # top-p .8
 */
import { describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { AllowedTokensLogitsProcessor } from "../../../../engine/sampling/built-in/allowed-tokens.ts";
import { BadWordsLogitsProcessor } from "../../../../engine/sampling/built-in/bad-words.ts";
import { LogitBiasLogitsProcessor } from "../../../../engine/sampling/built-in/logit-bias.ts";
import { MinPLogitsProcessor } from "../../../../engine/sampling/built-in/min-p.ts";
import { MinTokensLogitsProcessor } from "../../../../engine/sampling/built-in/min-tokens.ts";
import { PenaltiesLogitsProcessor } from "../../../../engine/sampling/built-in/penalties.ts";
import type { LogitsProcessor } from "../../../../engine/sampling/contract/logits-processor.ts";
import { TokenDraw } from "../../../../engine/sampling/draw/token-draw.ts";
import { scale } from "../../../../engine/sampling/row-operations.ts";
import { StepLogits } from "../../../../engine/sampling/step-logits.ts";
import { engineConfig, sampleOnce } from "../create-sampler.ts";
import { kernelWithRow } from "../kernel-with-row.ts";

interface Request {
  readonly params: Partial<SamplingParams>;
  readonly promptTokenIds?: readonly number[];
  readonly outputTokenIds?: readonly number[];
  readonly badWordsTokenIds?: readonly (readonly number[])[];
}

const sixLogits = [2, -1, 0.5, 3, -0.25, 1.7];

/** The row after the processor, for a request that is alone in the batch. */
function applied(processor: LogitsProcessor, request: Request, row: readonly number[] = sixLogits): number[] {
  const { params, promptTokenIds = [], outputTokenIds = [], badWordsTokenIds = [] } = request;
  const added = {
    index: 0,
    params: createSamplingParams(params),
    promptTokenIds,
    outputTokenIds,
    badWordsTokenIds,
    grammar: null,
  };
  processor.updateState({ batchSize: 1, removed: [], added: [added], moved: [] });
  const logits = new StepLogits(1, row.length);
  logits.numRequests = 1;
  logits.row(0).set(row);
  processor.apply(logits);
  return [...logits.row(0)];
}

function idsLeft(row: readonly number[]): number[] {
  return row.flatMap((logit, tokenId) => (logit === -Infinity ? [] : [tokenId]));
}

describe("penalties", () => {
  const tokens = { promptTokenIds: [0, 1], outputTokenIds: [3, 3, 1, 4] };
  const cases: [Partial<SamplingParams>, number[]][] = [
    [
      { repetitionPenalty: 1.3 },
      [1.5384615659713745, -1.2999999523162842, 0.5, 2.307692289352417, -0.32499998807907104, 1.7000000476837158],
    ],
    [
      { frequencyPenalty: 0.4 },
      [2.0, -1.399999976158142, 0.5, 2.200000047683716, -0.6499999761581421, 1.7000000476837158],
    ],
    [{ presencePenalty: -1.5 }, [2.0, 0.5, 0.5, 4.5, 1.25, 1.7000000476837158]],
    [
      { repetitionPenalty: 0.7, frequencyPenalty: 1.1, presencePenalty: 0.3 },
      [2.857142925262451, -2.0999999046325684, 0.5, 1.7857141494750977, -1.5750000476837158, 1.7000000476837158],
    ],
  ];

  test.for(cases)("of %o are bit-identical to NumPy's", ([params, expected]) => {
    expect(applied(new PenaltiesLogitsProcessor(engineConfig), { params, ...tokens })).toEqual(expected);
  });

  test("run after the other processors, so a bias is divided as well", () => {
    const params = { temperature: 0, logitBias: { 1: 4 }, repetitionPenalty: 2 };
    const logits = [2.5, 0, 0, 0];
    expect(sampleOnce([{ logits, params }])[0]!.tokenId).toBe(1);
    expect(sampleOnce([{ logits, params, outputTokenIds: [1] }])[0]!.tokenId).toBe(0);
  });
});

describe("logit bias", () => {
  test("is added, clamped to between -100 and 100", () => {
    const params = { logitBias: { 0: -1000, 2: 0.25, 5: Infinity } };
    expect(applied(new LogitBiasLogitsProcessor(engineConfig), { params })).toEqual([
      -98,
      -1,
      0.75,
      3,
      -0.25,
      Math.fround(Math.fround(1.7) + 100),
    ]);
  });
});

describe("allowed tokens", () => {
  test("keep their logits, and all others are excluded", () => {
    const params = { allowedTokenIds: [4, 1, 4] };
    expect(applied(new AllowedTokensLogitsProcessor(engineConfig), { params })).toEqual([
      -Infinity,
      -1,
      -Infinity,
      -Infinity,
      -0.25,
      -Infinity,
    ]);
  });
});

describe("bad words", () => {
  const badWordsTokenIds = [[5], [1, 2], [3, 3, 4]];
  const cases: [readonly number[], number[]][] = [
    [[], [0, 1, 2, 3, 4]],
    [[1], [0, 1, 3, 4]],
    [
      [1, 0],
      [0, 1, 2, 3, 4],
    ],
    [[3], [0, 1, 2, 3, 4]],
    [
      [0, 3, 3],
      [0, 1, 2, 3],
    ],
  ];

  test.for(cases)("after %o leave %o", ([outputTokenIds, expected]) => {
    const processor = new BadWordsLogitsProcessor(engineConfig);
    expect(idsLeft(applied(processor, { params: {}, outputTokenIds, badWordsTokenIds }))).toEqual(expected);
  });

  test("may be completed if they begin in the prompt", () => {
    const processor = new BadWordsLogitsProcessor(engineConfig);
    expect(idsLeft(applied(processor, { params: {}, promptTokenIds: [1], badWordsTokenIds }))).toContain(2);
  });
});

describe("min tokens", () => {
  const cases: [number, number[]][] = [
    [0, [0, 3, 5]],
    [1, [0, 3, 5]],
    [2, [0, 1, 2, 3, 4, 5]],
  ];

  test.for(cases)("of two, after %i tokens, leave %o", ([numTokens, expected]) => {
    const processor = new MinTokensLogitsProcessor(engineConfig, [1, 2]);
    const outputTokenIds = Array.from({ length: numTokens }, () => 0);
    const params = { minTokens: 2, stopTokenIds: [4, 99] };
    expect(idsLeft(applied(processor, { params, outputTokenIds }))).toEqual(expected);
  });
});

describe("draw parameters", () => {
  const logits = [2.0, 1.0, 0.1, -1.0, 0.5, 1.9];

  test("min-p after the temperature gives NumPy's probabilities", () => {
    const row = Float32Array.from(logits);
    scale(row, 1 / 0.7);
    const left = applied(new MinPLogitsProcessor(engineConfig), { params: { minP: 0.1 } }, [...row]).map(Math.exp);
    const total = left.reduce((sum, weight) => sum + weight, 0);
    const expected = [0.449671, 0.10776412, 0, 0, 0.05275503, 0.38980985];
    for (const [tokenId, weight] of left.entries()) expect(weight / total).toBeCloseTo(expected[tokenId]!, 6);
  });

  test.for([
    [3, 1, [0.47471458, 0.11376584, 0, 0, 0, 0.41151958]],
    [3, 0.8, [0.53565367, 0, 0, 0, 0, 0.46434633]],
    [0, 1, [0.43405337, 0.10402134, 0.02875702, 0.00597422, 0.05092278, 0.37627127]],
  ] as const)("top-k %i with top-p %f draws with NumPy's probabilities", ([topK, topP, expected]) => {
    const kernel = kernelWithRow(logits);
    const draw = new TokenDraw(kernel);
    const numDraws = 20_000;
    const counts = expected.map(() => 0);
    for (let index = 0; index < numDraws; index++) {
      counts[draw.draw(kernel.logits, { scale: 1 / 0.7, topK, topP, uniform: (index + 0.5) / numDraws })]! += 1;
    }
    for (const [tokenId, count] of counts.entries()) {
      expect(Math.abs(count / numDraws - expected[tokenId]!)).toBeLessThan(1.1e-4);
    }
  });

  test("logprobs are NumPy's log-softmax", () => {
    const { logprobs } = sampleOnce([{ logits, params: { temperature: 0, logprobs: 6 } }])[0]!;
    const expected = [-0.99147342, -1.09147342, -1.99147342, -2.49147342, -2.89147342, -3.99147342];
    expect(logprobs?.top.map(({ tokenId }) => tokenId)).toEqual([0, 5, 1, 4, 2, 3]);
    for (const [index, { logprob }] of logprobs!.top.entries()) expect(logprob).toBeCloseTo(expected[index]!, 6);
  });
});
