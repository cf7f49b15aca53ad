/** A validated, tokenized and processed request, as the engine thread receives it. Immutable. */
import type { SamplingParams } from "../contract/sampling-params.ts";
import type { PlaceholderRange } from "../multimodal/placeholder.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import type { CompiledGrammar } from "../structured-output/compiled-grammar.ts";

/** One image of a prompt, ready for the vision encoder. */
export interface ImageFeature {
  /**
   * Row-major, by the vision encoder's input names, without the batch dimension. Contains `image_embeds` alone if the
   * request brought the encoder's output itself.
   */
  readonly tensors: ProcessedItem["tensors"];
  /** Hash of model, processor options and encoded bytes. Equal hashes have equal embeddings. */
  readonly mmHash: string;
  readonly placeholder: PlaceholderRange;
}

/** The most tokens of thinking, after which its end is written. */
export interface ThinkingBudget {
  readonly numTokens: number;
  /** Token ids of the markers; not empty. */
  readonly startTokenIds: readonly number[];
  readonly endTokenIds: readonly number[];
  /** Whether the prompt has started the thinking. */
  readonly startsInside: boolean;
}

export interface EngineRequest {
  readonly requestId: string;
  /** With image placeholders expanded to one id per embedding. */
  readonly promptTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageFeature[];
  /** Omitted if the position of every token is its index. */
  readonly positions?: PromptPositions;
  readonly samplingParams: SamplingParams;
  /**
   * `samplingParams.badWords` as token sequences, each of at least one token, and the tokens and sequences that the
   * checkpoint suppresses. The output must not complete any of them.
   */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  /** Tokens that the checkpoint suppresses at the start of an output. Omitted if there are none. */
  readonly beginSuppressedTokenIds?: readonly number[];
  /** `samplingParams.structuredOutput`, compiled; null if the text is unconstrained. */
  readonly grammar: CompiledGrammar | null;
  /** Omitted if the thinking is not limited. */
  readonly thinkingBudget?: ThinkingBudget;
  /** A safe integer: `samplingParams.seed`, or a random one if that is null. */
  readonly seed: number;
  /** Lower values are scheduled first. Default 0. */
  readonly priority?: number;
  /** Whether the output is the decoder's for every token of the prompt. Only of an engine that pools. Default false. */
  readonly poolsTokens?: boolean;
  /** Index of the adapter among those of the model, from 1 on. Default 0: none. */
  readonly adapterId?: number;
  /** Requests with different salts do not reuse each other's keys and values. Null is a salt of its own. */
  readonly cacheSalt: string | null;
}
