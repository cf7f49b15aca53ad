/** Speculative decoding by prompt look-up, in the terms of vLLM's `ngram` method. */
import { EngineError } from "./errors.ts";
import type { ExtraArguments } from "./extra-arguments.ts";

/** The methods that are served, of those that vLLM has. */
export const speculativeMethods = ["ngram"] as const;

/**
 * The last tokens of a sequence are looked up earlier in it. The tokens after the match are a draft of the next ones, and
 * one run checks all of them.
 */
export interface SpeculativeConfig {
  readonly method: (typeof speculativeMethods)[number];
  /** Most tokens of a draft. 0 in a request's argument turns drafts off. */
  readonly numSpeculativeTokens: number;
  /** Tokens of the longest n-gram that is looked up. */
  readonly promptLookupMax: number;
  /** Tokens of the shortest one. */
  readonly promptLookupMin: number;
}

export const speculativeLimits = {
  /** A draft keeps a row of logits for each of its tokens. Longer drafts are seldom right to their end. */
  numSpeculativeTokens: 16,
  /** Each size of an n-gram has an index of its own. */
  promptLookup: 16,
} as const;

/** Of a request that asks for drafts where the service has no setting. */
export const defaultPromptLookup = { promptLookupMax: 4, promptLookupMin: 2 } as const;

/** The request's argument, under the name that transformers has for it. */
export const promptLookupArgument = "prompt_lookup_num_tokens";

/**
 * The request's argument `prompt_lookup_num_tokens`: the most tokens of a draft, 0 for none. Null if it is not given.
 *
 * @throws EngineError `invalid_argument`, whose `parameter` names the argument.
 */
export function numSpeculativeTokensOf(extraArgs: ExtraArguments): number | null {
  const value = extraArgs[promptLookupArgument];
  if (value === undefined) return null;
  const { numSpeculativeTokens: most } = speculativeLimits;
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= most) return value;
  const message = `${promptLookupArgument} must be a whole number from 0 to ${most}, got ${JSON.stringify(value)}.`;
  throw new EngineError("invalid_argument", message, { parameter: `samplingParams.extraArgs.${promptLookupArgument}` });
}
