/** Decoding settings of one request. */

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
