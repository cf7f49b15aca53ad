/** What a caller of `Engine.generate` receives, delta by delta. */

export type FinishReason = "stop" | "length" | "abort" | "error";

export interface TokenLogprob {
  readonly tokenId: number;
  /** Natural logarithm of the token's probability before any processor, penalty or temperature. */
  readonly logprob: number;
  /** 1-based; tokens of equal logit count against it. */
  readonly rank: number;
}

/** One generated token: its own logprob and the `logprobs` most likely ones, most likely first. */
export interface SampledLogprobs {
  readonly sampled: TokenLogprob;
  readonly top: readonly TokenLogprob[];
}

/** A token as text: what the token itself contributes, which may be part of a character. */
export interface DecodedLogprob extends TokenLogprob {
  /** U+FFFD stands for bytes that are no whole character. */
  readonly token: string;
  /** UTF-8. */
  readonly bytes: readonly number[];
}

export interface DecodedTokenLogprobs {
  readonly sampled: DecodedLogprob;
  readonly top: readonly DecodedLogprob[];
}

/** The prompt as text and tokens, expanded image placeholders included. */
export interface DecodedPrompt {
  /** As the request gave it; decoded where it gave tokens or messages. */
  readonly text: string;
  /** Of every token. */
  readonly tokens: readonly Pick<DecodedLogprob, "tokenId" | "token" | "bytes">[];
  /** Of every token, null for the first, which nothing precedes; null when the request asks for none. */
  readonly logprobs: readonly (DecodedTokenLogprobs | null)[] | null;
}

export interface RequestOutput {
  readonly requestId: string;
  /** Which of the request's choices this is a delta of. */
  readonly index: number;
  /** On the first output of each choice, where the request asks for the prompt or for its logprobs; else null. */
  readonly prompt: DecodedPrompt | null;
  /** Text that became certain since the last output; "" where a character or stop string is still open. */
  readonly text: string;
  /** Tokens since the last output. */
  readonly tokenIds: readonly number[];
  /** One entry per token of `tokenIds`; null when the request asks for none. */
  readonly logprobs: readonly DecodedTokenLogprobs[] | null;
  /** Null until the last output of the choice. */
  readonly finishReason: FinishReason | null;
  /** The stop string or stop token id that ended the text, where one did. */
  readonly stopReason: string | number | null;
  /** Tokens of the prompt, expanded image placeholders included. */
  readonly numPromptTokens: number;
  /** Those of the prompt's tokens that are image embeddings. */
  readonly numImageTokens: number;
  /** Prompt tokens whose KV was reused. */
  readonly numCachedTokens: number;
  /** All tokens of the choice generated so far. */
  readonly numOutputTokens: number;
}
