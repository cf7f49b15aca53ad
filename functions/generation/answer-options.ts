/** What the forms of answers have in common. */
export interface AnswerHead {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
}

export interface StreamUsageOptions {
  readonly includeUsage: boolean;
  /** Usage so far in every chunk; applies only with `includeUsage`. */
  readonly continuousUsage: boolean;
}

/** How an answer shows tokens; vLLM's fields. */
export interface TokenOptions {
  /** Ids of the prompt's and the output's tokens beside the text (`return_token_ids`). */
  readonly returnsTokenIds: boolean;
  /** `token_id:<id>` instead of text in logprobs (`return_tokens_as_token_ids`). */
  readonly tokensAsIds: boolean;
}
