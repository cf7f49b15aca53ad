import { expect, test } from "vitest";
import { EngineError } from "../../engine/errors.ts";
import { createSamplingParams } from "../../engine/sampling-params.ts";
import type { SamplingParams } from "../../engine/sampling-params.ts";

const refusals: [Partial<SamplingParams>, keyof SamplingParams, string][] = [
  [{ temperature: NaN }, "temperature", "temperature must be a finite number, got NaN."],
  [{ temperature: Infinity }, "temperature", "temperature must be a finite number, got Infinity."],
  [{ temperature: -1 }, "temperature", "temperature must be between 0 and 2, got -1."],
  [{ temperature: 2.1 }, "temperature", "temperature must be between 0 and 2, got 2.1."],
  [{ topP: 0 }, "topP", "topP must be above 0 and at most 1, got 0."],
  [{ topP: NaN }, "topP", "topP must be above 0 and at most 1, got NaN."],
  [{ topK: -2 }, "topK", "topK must be an integer: 0 (off) or at least 1, got -2."],
  [{ topK: 1.5 }, "topK", "topK must be an integer: 0 (off) or at least 1, got 1.5."],
  [{ minP: 1.1 }, "minP", "minP must be between 0 and 1, got 1.1."],
  [{ maxTokens: 0 }, "maxTokens", "maxTokens must be an integer: at least 1, got 0."],
  [{ maxTokens: -1 }, "maxTokens", "maxTokens must be an integer: at least 1, got -1."],
  [{ minTokens: -1 }, "minTokens", "minTokens must be an integer: at least 0, got -1."],
  [{ minTokens: 3, maxTokens: 2 }, "minTokens", "minTokens must be at most maxTokens, which is 2, got 3."],
  [{ logprobs: -1 }, "logprobs", "logprobs must be an integer: at least 0, got -1."],
  [{ logprobs: 21 }, "logprobs", "logprobs must be at most 20, got 21."],
  [{ seed: 0.5 }, "seed", "seed must be an integer between -2^53 and 2^53, got 0.5."],
  [{ stop: ["a", ""] }, "stop", "stop must not contain an empty string."],
  [{ stopTokenIds: [1, -5] }, "stopTokenIds", "stopTokenIds must be an integer: token ids of at least 0, got -5."],
];

test.for(refusals)("%o is refused", ([partial, field, message]) => {
  expect(() => createSamplingParams(partial)).toThrow(
    new EngineError("invalid_argument", message, { parameter: `samplingParams.${field}` }),
  );
});

test("a request that says nothing is sampled at temperature 1 without limits", () => {
  expect(createSamplingParams()).toEqual({
    temperature: 1,
    topP: 1,
    topK: 0,
    minP: 0,
    seed: null,
    maxTokens: null,
    minTokens: 0,
    stop: [],
    stopTokenIds: [],
    includeStopStringInOutput: false,
    ignoreEos: false,
    skipSpecialTokens: true,
    logprobs: null,
    extraArgs: {},
  });
});

test("an undefined field counts as absent", () => {
  const params: Partial<SamplingParams> = JSON.parse("{}") as Partial<SamplingParams>;
  expect(createSamplingParams({ ...params, topP: undefined as unknown as number }).topP).toBe(1);
});

test("a temperature next to nothing is greedy, with everything off that shapes a draw", () => {
  expect(createSamplingParams({ temperature: 9e-6, topP: 0.5, topK: 3, minP: 0.2 })).toMatchObject({
    temperature: 0,
    topP: 1,
    topK: 0,
    minP: 0,
  });
});

test("a temperature that would overflow is raised", () => {
  expect(createSamplingParams({ temperature: 0.001 }).temperature).toBe(0.01);
});

test("minus one is off for topK and seed", () => {
  expect(createSamplingParams({ topK: -1, seed: -1 })).toMatchObject({ topK: 0, seed: null });
});

test("a huge limit on tokens is left to the model's length", () => {
  expect(createSamplingParams({ maxTokens: 1e9 }).maxTokens).toBe(1e9);
});
