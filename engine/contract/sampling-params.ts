/** Decoding parameters of a request. Only this file validates them. */
import { shown } from "../excerpt.ts";
import type { StructuredOutput } from "../structured-output/structured-output.ts";
import { EngineError } from "./errors.ts";
import { isExtraArgument } from "./extra-arguments.ts";
import type { ExtraArguments } from "./extra-arguments.ts";
import { noRepeatNgramsOf } from "./no-repeat-ngram.ts";
import { checkRepetitionDetection } from "./repetition-detection.ts";
import type { RepetitionDetection } from "./repetition-detection.ts";
import { numSpeculativeTokensOf } from "./speculative-config.ts";

/** How a model marks its thinking in its output. */
export interface ReasoningMarkers {
  /** Such as `<think>`. The chat template may write it at the end of the prompt. */
  readonly start: string;
  /** Such as `</think>`. */
  readonly end: string;
  /** Whether the output is thinking from its start unless the prompt ends with `end`. */
  readonly startsInside: boolean;
}

export interface ReasoningParams extends ReasoningMarkers {
  /** Tokens of thinking after which the engine writes `end`; null for any number. */
  readonly tokenBudget: number | null;
}

export interface SamplingParams {
  /** 0 is greedy; values in (0, 0.01) are raised to 0.01. */
  readonly temperature: number;
  /** In (0, 1]; 1 is off. */
  readonly topP: number;
  /** 0 is off. */
  readonly topK: number;
  /** In [0, 1]; 0 is off. */
  readonly minP: number;
  /** In [-2, 2]; subtracted from the logit of every token the output has. 0 is off. */
  readonly presencePenalty: number;
  /** In [-2, 2]; subtracted once for each time the output has the token. 0 is off. */
  readonly frequencyPenalty: number;
  /** Above 0; values above 1 make tokens of prompt and output less likely. 1 is off. */
  readonly repetitionPenalty: number;
  /** Added to logits, by token id, clamped to -100 and 100; null for none. */
  readonly logitBias: Readonly<Record<number, number>> | null;
  /** The only tokens that may be generated; null allows all. */
  readonly allowedTokenIds: readonly number[] | null;
  /**
   * Words that the output must not contain, in the tokens into which the tokenizer divides them. As in vLLM, their tokens
   * with a space in front count too if these are as many and begin with another one. Other tokens that spell the same
   * text are allowed.
   */
  readonly badWords: readonly string[];
  /** The prescribed form of the text; null for any. Validated when the engine accepts the request. */
  readonly structuredOutput: StructuredOutput | null;
  /**
   * The same seed, request and checkpoint give the same draws, alone or in any batch. A draw depends only on seed,
   * position and logits. The last bits of logits may differ with the size of a batch (more than these in int4 on the
   * CPU, where one row is multiplied differently than several). That changes a draw only if tokens change their order by
   * likelihood, or if the draw is that close to the boundary between two tokens: seldom, but up to once in a few hundred
   * draws where thousands of tokens are about as likely. Null draws a random seed.
   */
  readonly seed: number | null;
  /** Maximum number of generated tokens; null for as many as fit into the model length. */
  readonly maxTokens: number | null;
  readonly minTokens: number;
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly number[];
  readonly includeStopStringInOutput: boolean;
  readonly ignoreEos: boolean;
  /** Ends an output that repeats itself; null for no such end. */
  readonly repetitionDetection: RepetitionDetection | null;
  readonly skipSpecialTokens: boolean;
  /** Texts of special tokens that the text contains although `skipSpecialTokens` is true, such as `[TOOL_CALLS]`. */
  readonly keptSpecialTokens: readonly string[];
  /** How the model marks its thinking; null for a model that does not. `structuredOutput` is the form of the rest. */
  readonly reasoning: ReasoningParams | null;
  /** Number of alternatives reported per generated token (0: the token's own only); null reports none. */
  readonly logprobs: number | null;
  /** Like `logprobs`, for every token of the prompt but the first. Such a prompt is computed without reused KV. */
  readonly promptLogprobs: number | null;
  /** Arguments for logits processors, by name; the built-in one for n-grams reads its own (`noRepeatNgramsOf`). */
  readonly extraArgs: ExtraArguments;
}

const defaultSamplingParams: SamplingParams = {
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
};

/** Below it, the division by the temperature loses all precision, so the request is greedy. */
const GREEDY_TEMPERATURE_LIMIT = 1e-5;
/** Smaller temperatures overflow float32 logits. */
const MIN_TEMPERATURE = 0.01;
const MAX_TEMPERATURE = 2;
const MAX_PENALTY = 2;

/** Maximum lengths of fields whose cost grows with their length. Checked before their elements. */
export const samplingLimits = {
  /** Stop strings. The text is searched for each of them after every generated token. */
  stop: 64,
  /** Characters of one stop string. The end of the text is held back by the length of the longest. */
  stopCharacters: 1024,
  /** Stop tokens. Every generated token is compared with each of them. */
  stopTokenIds: 256,
  badWords: 1024,
  /** Characters of all bad words. Each is tokenised twice; this many take about a tenth of a second. */
  badWordsCharacters: 65_536,
  /** Biased tokens. Each bias is added to a logit at every step. */
  logitBias: 4096,
  /** Allowed tokens. The largest vocabularies have this many. */
  allowedTokenIds: 262_144,
  /** Alternatives per token, as many as OpenAI's clients may ask for. Each costs a scan of the vocabulary. */
  logprobs: 20,
} as const;

/** Fields that are undefined count as absent. */
export type SamplingParamsInput = {
  readonly [Field in keyof SamplingParams]?: SamplingParams[Field] | undefined;
};

/**
 * Fills in defaults, checks every field and normalises: `topK` and `seed` of -1 are off, a temperature below 1e-5 is
 * greedy with `topP`, `topK` and `minP` off, and one below 0.01 is raised to 0.01. The rules are those of vLLM's
 * `SamplingParams`.
 *
 * @throws EngineError `invalid_argument`, whose `parameter` names the field, also for a name that is no field.
 */
export function createSamplingParams(partial: SamplingParamsInput = {}): SamplingParams {
  const given = Object.fromEntries(Object.entries(partial).filter(([, value]) => value !== undefined));
  checkNamesAndKinds(given);
  const params: SamplingParams = { ...defaultSamplingParams, ...given };
  checkTemperature(params.temperature);
  checkProbabilities(params);
  checkTokenLimits(params);
  checkStops(params);
  checkPenalties(params);
  checkLogitBias(params);
  checkAllowedTokenIds(params);
  checkBadWords(params);
  requireTexts("keptSpecialTokens", params.keptSpecialTokens);
  if (params.reasoning !== null) checkReasoning(params.reasoning);
  checkExtraArguments(params);
  if (params.repetitionDetection !== null) checkRepetitionDetection(params.repetitionDetection);
  if (Object.keys(params.extraArgs).length > 0) {
    noRepeatNgramsOf(params.extraArgs);
    numSpeculativeTokensOf(params.extraArgs);
  }
  if (params.topK !== -1) requireInteger("topK", params.topK, 0, "0 (disable), or at least 1");
  checkLogprobs("logprobs", params.logprobs);
  checkLogprobs("promptLogprobs", params.promptLogprobs);
  if (params.seed !== null && !Number.isSafeInteger(params.seed)) {
    refuse("seed", `must be an integer between -2^53 and 2^53, got ${params.seed}`);
  }
  return normalise(params);
}

/** Whether the value has all fields, as results of `createSamplingParams` do. */
export function isComplete(params: object): boolean {
  return Object.keys(defaultSamplingParams).every((field) => Object.hasOwn(params, field));
}

/** Whether the most likely token is chosen instead of drawing one. */
export function isGreedy(params: SamplingParams): boolean {
  return params.temperature < GREEDY_TEMPERATURE_LIMIT;
}

function normalise(params: SamplingParams): SamplingParams {
  const seed = params.seed === -1 ? null : params.seed;
  const repetitionDetection = params.repetitionDetection?.maxPatternSize === 0 ? null : params.repetitionDetection;
  if (isGreedy(params)) return { ...params, seed, repetitionDetection, temperature: 0, topP: 1, topK: 0, minP: 0 };
  return {
    ...params,
    seed,
    repetitionDetection,
    temperature: Math.max(params.temperature, MIN_TEMPERATURE),
    topK: params.topK === -1 ? 0 : params.topK,
  };
}

/** Of the fields whose default is null. */
const nullableKinds: Readonly<Partial<Record<keyof SamplingParams, string>>> = {
  logitBias: "an object",
  allowedTokenIds: "a list",
  structuredOutput: "an object",
  seed: "a number",
  maxTokens: "a number",
  repetitionDetection: "an object",
  reasoning: "an object",
  logprobs: "a number",
  promptLogprobs: "a number",
};

/** In plain JavaScript, types catch neither a misspelled name nor a text in place of a number or a list. */
function checkNamesAndKinds(given: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(given)) {
    if (!isField(name)) {
      const meant = name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
      const hint = isField(meant) ? `; did you mean ${meant}?` : ".";
      throw new EngineError("invalid_argument", `There is no sampling parameter ${name}${hint}`, {
        parameter: `samplingParams.${name}`,
      });
    }
    const nullableKind = nullableKinds[name];
    if (nullableKind !== undefined && value === null) continue;
    const kind = nullableKind ?? kindOf(defaultSamplingParams[name]);
    if (kindOf(value) === kind) continue;
    refuse(name, `must be ${kind}${nullableKind === undefined ? "" : " or null"}, got ${shown(value)}`);
  }
}

function isField(name: string): name is keyof SamplingParams {
  return Object.hasOwn(defaultSamplingParams, name);
}

/** Null for what no field can be. */
function kindOf(value: unknown): string | null {
  if (typeof value === "number") return "a number";
  if (typeof value === "boolean") return "true or false";
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return "a list";
  // The entries of a Map are no fields, so it would count as empty.
  return typeof value === "object" && value !== null && !(Symbol.iterator in value) ? "an object" : null;
}

function checkTemperature(temperature: number): void {
  if (!Number.isFinite(temperature)) refuse("temperature", `must be a finite number, got ${temperature}`);
  if (temperature < 0) refuse("temperature", `must be non-negative, got ${temperature}`);
  if (temperature > MAX_TEMPERATURE) refuse("temperature", `must be in [0, ${MAX_TEMPERATURE}], got ${temperature}`);
}

/** Negated comparisons also reject NaN. */
function checkProbabilities({ topP, minP }: SamplingParams): void {
  if (!(topP > 0 && topP <= 1)) refuse("topP", `must be in (0, 1], got ${topP}`);
  if (!(minP >= 0 && minP <= 1)) refuse("minP", `must be in [0, 1], got ${minP}`);
}

function checkTokenLimits({ maxTokens, minTokens }: SamplingParams): void {
  if (maxTokens !== null) requireInteger("maxTokens", maxTokens, 1, "at least 1");
  requireInteger("minTokens", minTokens, 0, "greater than or equal to 0");
  if (maxTokens !== null && minTokens > maxTokens) {
    refuse("minTokens", `must be less than or equal to maxTokens=${maxTokens}, got ${minTokens}`);
  }
}

function checkStops({ stop, stopTokenIds }: SamplingParams): void {
  requireAtMost("stop", stop.length);
  requireTexts("stop", stop);
  if (stop.includes("")) refuse("stop", "cannot contain an empty string");
  const longest = stop.reduce((length, text) => Math.max(length, text.length), 0);
  const { stopCharacters } = samplingLimits;
  if (longest > stopCharacters) {
    refuse("stop", `must contain strings of at most ${stopCharacters} characters, got one of ${longest}`);
  }
  requireAtMost("stopTokenIds", stopTokenIds.length);
  requireTokenIds("stopTokenIds", stopTokenIds);
}

/** Negated comparisons also reject NaN. */
function checkPenalties(params: SamplingParams): void {
  for (const field of ["presencePenalty", "frequencyPenalty"] as const) {
    const penalty = params[field];
    if (!(Math.abs(penalty) <= MAX_PENALTY))
      refuse(field, `must be in [-${MAX_PENALTY}, ${MAX_PENALTY}], got ${penalty}`);
  }
  const { repetitionPenalty } = params;
  if (!Number.isFinite(repetitionPenalty)) {
    refuse("repetitionPenalty", `must be a finite number, got ${repetitionPenalty}`);
  }
  if (repetitionPenalty <= 0) refuse("repetitionPenalty", `must be greater than zero, got ${repetitionPenalty}`);
}

function checkLogitBias({ logitBias }: SamplingParams): void {
  if (logitBias === null) return;
  const tokenIds = Object.keys(logitBias);
  requireAtMost("logitBias", tokenIds.length);
  const strangers = tokenIds.filter((key) => !/^-?\d+$/.test(key));
  if (strangers.length > 0) {
    const keys = describeSome(strangers);
    refuse("logitBias", `contains key(s) that cannot be converted to integer token IDs: [${keys}]`);
  }
  for (const [tokenId, bias] of Object.entries(logitBias)) {
    if (typeof bias !== "number" || Number.isNaN(bias)) {
      refuse("logitBias", `must map each token to a number, got ${bias} for ${tokenId}`);
    }
  }
}

function checkAllowedTokenIds({ allowedTokenIds }: SamplingParams): void {
  if (allowedTokenIds === null) return;
  if (allowedTokenIds.length === 0) refuse("allowedTokenIds", "is not null and empty");
  requireAtMost("allowedTokenIds", allowedTokenIds.length);
  requireTokenIds("allowedTokenIds", allowedTokenIds);
}

function checkBadWords({ badWords }: SamplingParams): void {
  requireAtMost("badWords", badWords.length);
  requireTexts("badWords", badWords);
  // Words of spaces only become empty when they are tokenised without leading spaces.
  if (badWords.some((word) => word.trim() === "")) refuse("badWords", "cannot contain an empty string");
  const numCharacters = badWords.reduce((sum, word) => sum + word.length, 0);
  const { badWordsCharacters } = samplingLimits;
  if (numCharacters > badWordsCharacters) {
    refuse("badWords", `must have at most ${badWordsCharacters} characters in total, got ${numCharacters}`);
  }
}

function checkReasoning({ start, end, startsInside, tokenBudget }: ReasoningParams): void {
  const isComplete = typeof start === "string" && typeof end === "string" && typeof startsInside === "boolean";
  if (!isComplete) refuse("reasoning", "must have the texts start and end, and startsInside");
  if (tokenBudget === null || (Number.isInteger(tokenBudget) && tokenBudget >= 0)) return;
  refuse("reasoning", `must have a tokenBudget that is a whole number or null, got ${shown(tokenBudget)}`);
}

function checkExtraArguments({ extraArgs }: SamplingParams): void {
  for (const [name, value] of Object.entries(extraArgs)) {
    if (value === undefined || isExtraArgument(value)) continue;
    refuse("extraArgs", `must contain texts, numbers, booleans and lists of those, got ${shown(value)} for ${name}`);
  }
}

function checkLogprobs(field: "logprobs" | "promptLogprobs", count: number | null): void {
  if (count === null) return;
  requireInteger(field, count, 0, "non-negative");
  if (count > samplingLimits.logprobs) refuse(field, `must be at most ${samplingLimits.logprobs}, got ${count}`);
}

function requireTexts(field: keyof SamplingParams, texts: readonly string[]): void {
  // A list may have holes, which `find` visits.
  const isStranger = (value: unknown): boolean => typeof value !== "string";
  const index = texts.findIndex(isStranger);
  if (index !== -1) refuse(field, `must contain only texts, got ${shown(texts[index])}`);
}

function requireTokenIds(field: keyof SamplingParams, tokenIds: readonly number[]): void {
  for (const tokenId of tokenIds) {
    if (!Number.isInteger(tokenId)) refuse(field, `must contain only integers, got ${tokenId}`);
    if (tokenId < 0) refuse(field, `must contain token ids of at least 0, got ${tokenId}`);
  }
}

function requireAtMost(field: keyof SamplingParams & keyof typeof samplingLimits, count: number): void {
  const maximum = samplingLimits[field];
  if (count > maximum) refuse(field, `must have at most ${maximum} entries, got ${count}`);
}

/** A list of keys, shortened to fit into a message. */
function describeSome(keys: readonly string[]): string {
  const shown = keys
    .slice(0, 8)
    .map((key) => JSON.stringify(key.slice(0, 40)))
    .join(", ");
  return keys.length > 8 ? `${shown}, and ${keys.length - 8} more` : shown;
}

function requireInteger(field: keyof SamplingParams, value: number, minimum: number, expected: string): void {
  if (!Number.isInteger(value)) refuse(field, `must be an integer, ${expected}, got ${value}`);
  if (value < minimum) refuse(field, `must be ${expected}, got ${value}`);
}

function refuse(field: keyof SamplingParams, problem: string): never {
  throw new EngineError("invalid_argument", `${field} ${problem}.`, { parameter: `samplingParams.${field}` });
}
