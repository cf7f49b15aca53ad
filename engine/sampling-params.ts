/** Decoding settings of one request, and the one place that checks them. */
import { EngineError } from "./errors.ts";

export type ExtraArgument = string | number | boolean | readonly (string | number | boolean)[];

export interface SamplingParams {
  /** 0 is greedy; values in (0, 0.01) are raised to 0.01. */
  readonly temperature: number;
  /** In (0, 1]; 1 is off. */
  readonly topP: number;
  /** 0 is off. */
  readonly topK: number;
  /** In [0, 1]; 0 is off. */
  readonly minP: number;
  /** Same seed, same request, same checkpoint: same tokens. Null draws one at random. */
  readonly seed: number | null;
  /** Most tokens generated; null is what fits into the model's length. */
  readonly maxTokens: number | null;
  readonly minTokens: number;
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly number[];
  readonly includeStopStringInOutput: boolean;
  readonly ignoreEos: boolean;
  readonly skipSpecialTokens: boolean;
  /** Number of alternatives reported per generated token (0: the token's own only); null reports none. */
  readonly logprobs: number | null;
  /** Arguments for logits processors, by name. */
  readonly extraArgs: Readonly<Record<string, ExtraArgument>>;
}

const defaultSamplingParams: SamplingParams = {
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
};

/** Below it the division by the temperature loses all precision: the request is greedy. */
const greedyTemperatureLimit = 1e-5;
/** Smaller temperatures overflow float32 logits. */
const minTemperature = 0.01;
const maxTemperature = 2;
/** As many alternatives per token as OpenAI's clients may ask for; each costs a scan of the vocabulary. */
const maxLogprobs = 20;

/**
 * Fills in defaults, checks every field and normalises: `topK` and `seed` of -1 are off, a temperature below 1e-5 is
 * greedy with `topP`, `topK` and `minP` off, one below 0.01 is raised to 0.01. Fields that are undefined count as
 * absent. Throws EngineError `invalid_argument` that names the field. Rules as in vLLM's `SamplingParams`.
 */
export function createSamplingParams(partial: Partial<SamplingParams> = {}): SamplingParams {
  const given = Object.fromEntries(Object.entries(partial).filter(([, value]) => value !== undefined));
  const params: SamplingParams = { ...defaultSamplingParams, ...given };
  checkTemperature(params.temperature);
  checkProbabilities(params);
  checkTokenLimits(params);
  checkStops(params);
  if (params.topK !== -1) requireInteger("topK", params.topK, 0, "0 (off) or at least 1");
  if (params.logprobs !== null) {
    requireInteger("logprobs", params.logprobs, 0, "at least 0");
    if (params.logprobs > maxLogprobs) refuse("logprobs", `must be at most ${maxLogprobs}, got ${params.logprobs}`);
  }
  if (params.seed !== null && !Number.isSafeInteger(params.seed)) {
    refuse("seed", `must be an integer between -2^53 and 2^53, got ${params.seed}`);
  }
  return normalise(params);
}

/** Whether the most likely token is taken instead of drawing one. */
export function isGreedy(params: SamplingParams): boolean {
  return params.temperature < greedyTemperatureLimit;
}

function normalise(params: SamplingParams): SamplingParams {
  const seed = params.seed === -1 ? null : params.seed;
  if (isGreedy(params)) return { ...params, seed, temperature: 0, topP: 1, topK: 0, minP: 0 };
  return {
    ...params,
    seed,
    temperature: Math.max(params.temperature, minTemperature),
    topK: params.topK === -1 ? 0 : params.topK,
  };
}

function checkTemperature(temperature: number): void {
  if (!Number.isFinite(temperature)) refuse("temperature", `must be a finite number, got ${temperature}`);
  if (temperature < 0 || temperature > maxTemperature) {
    refuse("temperature", `must be between 0 and ${maxTemperature}, got ${temperature}`);
  }
}

/** Negated comparisons refuse NaN too. */
function checkProbabilities({ topP, minP }: SamplingParams): void {
  if (!(topP > 0 && topP <= 1)) refuse("topP", `must be above 0 and at most 1, got ${topP}`);
  if (!(minP >= 0 && minP <= 1)) refuse("minP", `must be between 0 and 1, got ${minP}`);
}

function checkTokenLimits({ maxTokens, minTokens }: SamplingParams): void {
  if (maxTokens !== null) requireInteger("maxTokens", maxTokens, 1, "at least 1");
  requireInteger("minTokens", minTokens, 0, "at least 0");
  if (maxTokens !== null && minTokens > maxTokens) {
    refuse("minTokens", `must be at most maxTokens, which is ${maxTokens}, got ${minTokens}`);
  }
}

function checkStops({ stop, stopTokenIds }: SamplingParams): void {
  if (stop.includes("")) refuse("stop", "must not contain an empty string");
  for (const tokenId of stopTokenIds) requireInteger("stopTokenIds", tokenId, 0, "token ids of at least 0");
}

function requireInteger(field: keyof SamplingParams, value: number, minimum: number, expected: string): void {
  if (!Number.isInteger(value) || value < minimum) refuse(field, `must be an integer: ${expected}, got ${value}`);
}

function refuse(field: keyof SamplingParams, problem: string): never {
  throw new EngineError("invalid_argument", `${field} ${problem}.`, { parameter: `samplingParams.${field}` });
}
