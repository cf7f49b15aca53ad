/** The output of `Engine.generate`, delta by delta. */

/** `repetition`: the output repeated itself, see `SamplingParams.repetitionDetection`. */
export type FinishReason = "stop" | "length" | "abort" | "error" | "repetition";

/** The request's stop token that ended the text, or vLLM's name for a repetition. */
export type TokenStopReason = number | "repetition_detected";

/** The lowest logprob that is reported, as in vLLM: JSON has no minus infinity. No reachable logprob is below it. */
export const LEAST_LOGPROB = -9999;

export interface TokenLogprob {
  readonly tokenId: number;
  /** Natural logarithm of the token's probability before any processor, penalty or temperature. */
  readonly logprob: number;
  /** 1-based; tokens with an equal logit count against it. */
  readonly rank: number;
}

/** One generated token: its own logprob and the `logprobs` most likely tokens, most likely first. */
export interface SampledLogprobs {
  readonly sampled: TokenLogprob;
  readonly top: readonly TokenLogprob[];
}

/** A token as text: its own contribution, which may be a part of a character. */
export interface DecodedLogprob extends TokenLogprob {
  /** U+FFFD stands for bytes that do not form a character. */
  readonly token: string;
  /** UTF-8. */
  readonly bytes: readonly number[];
}

export interface DecodedTokenLogprobs {
  readonly sampled: DecodedLogprob;
  /** Set for a special token that the output's text leaves out. */
  readonly isLeftOut?: true;
  readonly top: readonly DecodedLogprob[];
}

/** The prompt as text and tokens, expanded image placeholders included. */
export interface DecodedPrompt {
  /** As in the request; decoded if it contained tokens, messages or parts, or if the prompt may be truncated. */
  readonly text: string;
  /**
   * One entry per token. `textBytes` are the bytes of `text` that the token stands for, where these are not `bytes`: none
   * for a special token that the tokenizer added, and for all tokens of an image but the last, which stands for the
   * placeholder; those after the space that SentencePiece puts before a text.
   */
  readonly tokens: readonly (Pick<DecodedLogprob, "tokenId" | "token" | "bytes"> & {
    readonly textBytes?: readonly number[];
  })[];
  /** One entry per token, null for the first; null if the request asks for none. */
  readonly logprobs: readonly (DecodedTokenLogprobs | null)[] | null;
}

/**
 * Where an output starts, as the end of the prompt says: inside the model's thinking, after it, or before it. `continued`:
 * inside thinking of which the prompt has a part, so that white space at the start of the output belongs to it.
 */
export type ReasoningStart = "inside" | "continued" | "after" | "before";

/** vLLM's names for the inputs beside the text. */
export type Modality = "image" | "video";

export interface RequestOutput {
  readonly requestId: string;
  /** Index of the choice that this delta belongs to. */
  readonly index: number;
  /** Set on the first output of each choice if the request asks for the prompt or its logprobs; otherwise null. */
  readonly prompt: DecodedPrompt | null;
  /** Set on the first output of each choice if `samplingParams.reasoning` is set. */
  readonly reasoningStart?: ReasoningStart;
  /** Text that became final since the last output; "" while a character or a stop string is incomplete. */
  readonly text: string;
  /** Tokens since the last output. */
  readonly tokenIds: readonly number[];
  /** Length of `text` after each token, if there are several and `samplingParams.reasoning` is set. */
  readonly textEnds?: readonly number[];
  /** One entry per token of `tokenIds`; null if the request asks for none. */
  readonly logprobs: readonly DecodedTokenLogprobs[] | null;
  /** Of the task `embed`, on the only output: [`ModelInfo.embeddingSize`], not normalised. */
  readonly embedding?: Float32Array;
  /** Of the task `token_embed`, on the only output: [numPromptTokens, `ModelInfo.embeddingSize`], row-major, not normalised. */
  readonly tokenEmbeddings?: Float32Array;
  /** Of the task `score`, on the only output: a logit, or the logarithm of the odds between two classes. */
  readonly score?: number;
  /** Null until the last output of the choice. */
  readonly finishReason: FinishReason | null;
  /** The stop string or stop token id that ended the text, if one did; `repetition_detected` for a repetition. */
  readonly stopReason: string | number | null;
  /** Tokens of the prompt, with image placeholders expanded. */
  readonly numPromptTokens: number;
  /** Prompt tokens that are embeddings of images. */
  readonly numImageTokens: number;
  /** Prompt tokens that are embeddings of frames of videos. Left out for none. */
  readonly numVideoTokens?: number;
  /** Images of the request that the model does not see: truncated, or older than the only one. Left out for none. */
  readonly numOmittedImages?: number;
  /** Prompt tokens whose KV was reused. */
  readonly numCachedTokens: number;
  /** All tokens of the choice generated so far. */
  readonly numOutputTokens: number;
}
