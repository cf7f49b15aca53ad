/**
 * Arguments of the built-in n-gram processor, under the names of vLLM's processor for DeepSeek-OCR (`ngram_size`,
 * `window_size`, `whitelist_token_ids`) and of MinerU's (`no_repeat_ngram_size`).
 */
import { EngineError } from "./errors.ts";
import type { ExtraArgument, ExtraArguments } from "./extra-arguments.ts";

export interface NoRepeatNgram {
  /** Tokens of an n-gram, at least 1. */
  readonly size: number;
  /** Only n-grams within so many of the newest output tokens count; Infinity for the whole output. */
  readonly windowSize: number;
  /** Tokens that may always be repeated. */
  readonly allowedTokenIds: ReadonlySet<number>;
}

/** A match of hashes is verified token by token. */
export const MAX_NGRAM_SIZE = 1024;
/** As in vLLM. */
const DEFAULT_WINDOW_SIZE = 100;

/**
 * The n-gram rules of a request, none for most. A size of 0 turns a rule off, for example one that is a default of the
 * service. Both names may be given; both rules then act.
 *
 * @throws EngineError `invalid_argument`, whose `parameter` names the argument.
 */
export function noRepeatNgramsOf(extraArgs: ExtraArguments): readonly NoRepeatNgram[] {
  const { ngram_size: ngramSize, no_repeat_ngram_size: unboundedSize } = extraArgs;
  const rules: NoRepeatNgram[] = [];
  if (ngramSize !== undefined && ngramSize !== 0) {
    const { window_size: windowSize = DEFAULT_WINDOW_SIZE, whitelist_token_ids: whitelist = [] } = extraArgs;
    rules.push({
      size: requireInteger("ngram_size", ngramSize, 0, MAX_NGRAM_SIZE),
      windowSize: requireInteger("window_size", windowSize, 1, Number.MAX_SAFE_INTEGER),
      allowedTokenIds: requireTokenIds("whitelist_token_ids", whitelist),
    });
  }
  if (unboundedSize !== undefined && unboundedSize !== 0) {
    const size = requireInteger("no_repeat_ngram_size", unboundedSize, 0, MAX_NGRAM_SIZE);
    rules.push({ size, windowSize: Infinity, allowedTokenIds: new Set() });
  }
  return rules;
}

function requireInteger(name: string, value: ExtraArgument, minimum: number, maximum: number): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= minimum && value <= maximum) return value;
  return refuse(name, `must be a whole number from ${minimum} to ${maximum}, got ${JSON.stringify(value)}`);
}

function requireTokenIds(name: string, value: ExtraArgument): ReadonlySet<number> {
  if (typeof value !== "object") return refuse(name, `must be a list of token ids, got ${JSON.stringify(value)}`);
  const tokenIds = new Set<number>();
  for (const tokenId of value) {
    if (typeof tokenId !== "number" || !Number.isInteger(tokenId) || tokenId < 0) {
      return refuse(name, `must contain only token ids, got ${JSON.stringify(tokenId)}`);
    }
    tokenIds.add(tokenId);
  }
  return tokenIds;
}

function refuse(name: string, problem: string): never {
  throw new EngineError("invalid_argument", `${name} ${problem}.`, { parameter: `samplingParams.extraArgs.${name}` });
}
