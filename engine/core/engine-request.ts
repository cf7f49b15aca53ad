/** A validated, tokenized, processed request as the engine thread receives it; immutable. */
import type { SamplingParams } from "../contract/sampling-params.ts";
import type { CompiledGrammar } from "../structured-output/compiled-grammar.ts";
import type { PlaceholderRange } from "../multimodal/placeholder.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";

/** One image of a prompt, ready for the vision encoder. */
export interface ImageFeature {
  /**
   * Row-major, by the vision encoder's input names, without the dimension of the batch; or `image_embeds` alone, which
   * is what the encoder would make of them.
   */
  readonly tensors: ProcessedItem["tensors"];
  /** Hash of model, processor options and encoded bytes: equal hashes have equal embeddings. */
  readonly mmHash: string;
  readonly placeholder: PlaceholderRange;
}

export interface EngineRequest {
  readonly requestId: string;
  /** Image placeholders already expanded to one id per embedding. */
  readonly promptTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageFeature[];
  /** Left out where every token's position is the place it stands at. */
  readonly positions?: PromptPositions;
  readonly samplingParams: SamplingParams;
  /** `samplingParams.badWords`: token sequences, none empty, of which none may be completed in the output. */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  /** `samplingParams.structuredOutput`, compiled; null where the text is free. */
  readonly grammar: CompiledGrammar | null;
  /** Safe integer: `samplingParams.seed`, or one that the facade drew where that is null. */
  readonly seed: number;
  /** Requests of different salts reuse none of each other's keys and values; null is a salt of its own. */
  readonly cacheSalt: string | null;
}
