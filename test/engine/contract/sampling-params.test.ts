import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";

const refusals: [Partial<SamplingParams>, keyof SamplingParams, string][] = [
  [{ temperature: NaN }, "temperature", "temperature must be a finite number, got NaN."],
  [{ temperature: Infinity }, "temperature", "temperature must be a finite number, got Infinity."],
  [{ temperature: -1 }, "temperature", "temperature must be non-negative, got -1."],
  [{ temperature: 2.1 }, "temperature", "temperature must be in [0, 2], got 2.1."],
  [{ topP: 0 }, "topP", "topP must be in (0, 1], got 0."],
  [{ topP: NaN }, "topP", "topP must be in (0, 1], got NaN."],
  [{ topK: -2 }, "topK", "topK must be 0 (disable), or at least 1, got -2."],
  [{ topK: 1.5 }, "topK", "topK must be an integer, 0 (disable), or at least 1, got 1.5."],
  [{ minP: 1.1 }, "minP", "minP must be in [0, 1], got 1.1."],
  [{ maxTokens: 0 }, "maxTokens", "maxTokens must be at least 1, got 0."],
  [{ maxTokens: -1 }, "maxTokens", "maxTokens must be at least 1, got -1."],
  [{ minTokens: -1 }, "minTokens", "minTokens must be greater than or equal to 0, got -1."],
  [{ minTokens: 3, maxTokens: 2 }, "minTokens", "minTokens must be less than or equal to maxTokens=2, got 3."],
  [{ logprobs: -1 }, "logprobs", "logprobs must be non-negative, got -1."],
  [{ logprobs: 21 }, "logprobs", "logprobs must be at most 20, got 21."],
  [{ seed: 0.5 }, "seed", "seed must be an integer between -2^53 and 2^53, got 0.5."],
  [{ stop: ["a", ""] }, "stop", "stop cannot contain an empty string."],
  [{ stopTokenIds: [1, -5] }, "stopTokenIds", "stopTokenIds must contain token ids of at least 0, got -5."],
  [{ stop: Array.from({ length: 65 }, () => "x") }, "stop", "stop must have at most 64 entries, got 65."],
  [{ stop: ["x".repeat(1025)] }, "stop", "stop must contain strings of at most 1024 characters, got one of 1025."],
  [
    { stopTokenIds: Array.from({ length: 257 }, () => 1) },
    "stopTokenIds",
    "stopTokenIds must have at most 256 entries, got 257.",
  ],
  [{ presencePenalty: 2.1 }, "presencePenalty", "presencePenalty must be in [-2, 2], got 2.1."],
  [{ presencePenalty: NaN }, "presencePenalty", "presencePenalty must be in [-2, 2], got NaN."],
  [{ frequencyPenalty: -3 }, "frequencyPenalty", "frequencyPenalty must be in [-2, 2], got -3."],
  [{ repetitionPenalty: 0 }, "repetitionPenalty", "repetitionPenalty must be greater than zero, got 0."],
  [{ repetitionPenalty: NaN }, "repetitionPenalty", "repetitionPenalty must be a finite number, got NaN."],
  [{ repetitionPenalty: Infinity }, "repetitionPenalty", "repetitionPenalty must be a finite number, got Infinity."],
  [
    { logitBias: JSON.parse('{"1": 2, "two": 3, "1.5": 1}') as Record<number, number> },
    "logitBias",
    'logitBias contains key(s) that cannot be converted to integer token IDs: ["two", "1.5"].',
  ],
  [{ logitBias: { 7: NaN } }, "logitBias", "logitBias must map each token to a number, got NaN for 7."],
  [{ allowedTokenIds: [] }, "allowedTokenIds", "allowedTokenIds is not null and empty."],
  [{ allowedTokenIds: [1, 0.5] }, "allowedTokenIds", "allowedTokenIds must contain only integers, got 0.5."],
  [{ badWords: ["a", ""] }, "badWords", "badWords cannot contain an empty string."],
  [{ badWords: ["  "] }, "badWords", "badWords cannot contain an empty string."],
  [
    { badWords: Array.from({ length: 1025 }, () => "x") },
    "badWords",
    "badWords must have at most 1024 entries, got 1025.",
  ],
  [{ badWords: ["x".repeat(65_537)] }, "badWords", "badWords must have at most 65536 characters in total, got 65537."],
  [{ promptLogprobs: 21 }, "promptLogprobs", "promptLogprobs must be at most 20, got 21."],
];

test.for(refusals)("%o is rejected", ([partial, field, message]) => {
  expect(() => createSamplingParams(partial)).toThrow(
    new EngineError("invalid_argument", message, { parameter: `samplingParams.${field}` }),
  );
});

test.for<[Record<string, unknown>, string, string]>([
  [{ max_tokens: 5 }, "max_tokens", "There is no sampling parameter max_tokens; did you mean maxTokens?"],
  [{ temprature: 1 }, "temprature", "There is no sampling parameter temprature."],
  [{ toString: 1 }, "toString", "There is no sampling parameter toString."],
  [{ temperature: "1" }, "temperature", 'temperature must be a number, got "1".'],
  [{ topP: null }, "topP", "topP must be a number, got null."],
  [{ maxTokens: "5" }, "maxTokens", 'maxTokens must be a number or null, got "5".'],
  [{ ignoreEos: 1 }, "ignoreEos", "ignoreEos must be true or false, got 1."],
  [{ stop: "." }, "stop", 'stop must be a list, got ".".'],
  [{ allowedTokenIds: 7 }, "allowedTokenIds", "allowedTokenIds must be a list or null, got 7."],
  [{ logitBias: new Map([[7, 1]]) }, "logitBias", "logitBias must be an object or null, got a Map."],
  [{ extraArgs: new Map([["a", 1]]) }, "extraArgs", "extraArgs must be an object, got a Map."],
  [{ stop: new Set(["a"]) }, "stop", "stop must be a list, got a Set."],
  [{ logitBias: [7] }, "logitBias", "logitBias must be an object or null, got a list of 1 element."],
  [{ extraArgs: null }, "extraArgs", "extraArgs must be an object, got null."],
  [{ stop: [null] }, "stop", "stop must contain only texts, got null."],
  [{ stop: ["a", 5] }, "stop", "stop must contain only texts, got 5."],
  [{ badWords: [["a"]] }, "badWords", "badWords must contain only texts, got a list of 1 element."],
  [{ keptSpecialTokens: [7] }, "keptSpecialTokens", "keptSpecialTokens must contain only texts, got 7."],
  [{ reasoning: { start: "<a>" } }, "reasoning", "reasoning must have the texts start and end, and startsInside."],
  [
    { reasoning: { start: "<a>", end: "</a>", startsInside: false } },
    "reasoning",
    "reasoning must have a tokenBudget that is a whole number or null, got undefined.",
  ],
  [
    { extraArgs: { a: () => 1 } },
    "extraArgs",
    "extraArgs must contain texts, numbers, booleans and lists of those, got the function a for a.",
  ],
  [
    { extraArgs: { a: [{}] } },
    "extraArgs",
    "extraArgs must contain texts, numbers, booleans and lists of those, got a list of 1 element for a.",
  ],
])("%o of plain JavaScript is rejected", ([given, name, message]) => {
  expect(() => createSamplingParams(given)).toThrow(
    new EngineError("invalid_argument", message, { parameter: `samplingParams.${name}` }),
  );
});

test("an empty request is sampled at temperature 1 without limits", () => {
  expect(createSamplingParams()).toEqual({
    temperature: 1,
    topP: 1,
    topK: 0,
    minP: 0,
    presencePenalty: 0,
    frequencyPenalty: 0,
    repetitionPenalty: 1,
    logitBias: null,
    allowedTokenIds: null,
    badWords: [],
    structuredOutput: null,
    seed: null,
    maxTokens: null,
    minTokens: 0,
    stop: [],
    stopTokenIds: [],
    includeStopStringInOutput: false,
    ignoreEos: false,
    repetitionDetection: null,
    skipSpecialTokens: true,
    keptSpecialTokens: [],
    reasoning: null,
    logprobs: null,
    promptLogprobs: null,
    extraArgs: {},
  });
});

test("an undefined field counts as absent", () => {
  const params: Partial<SamplingParams> = JSON.parse("{}") as Partial<SamplingParams>;
  expect(createSamplingParams({ ...params, topP: undefined as unknown as number }).topP).toBe(1);
});

test("a temperature close to zero means greedy, with all draw parameters off", () => {
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

test("minus one turns topK and seed off", () => {
  expect(createSamplingParams({ topK: -1, seed: -1 })).toMatchObject({ topK: 0, seed: null });
});

test("penalties and biases also apply to greedy requests", () => {
  const params = { presencePenalty: -2, frequencyPenalty: 2, repetitionPenalty: 1.3, logitBias: { 5: 1000 } };
  expect(createSamplingParams({ temperature: 0, ...params })).toMatchObject(params);
});

test("a huge token limit is accepted and left to the model length", () => {
  expect(createSamplingParams({ maxTokens: 1e9 }).maxTokens).toBe(1e9);
});
