/** What a decoder computes of the last states of its rows. */

import type { Projection } from "./retrieval/retriever.ts";

export type DecoderOutput =
  /** The logits of the vocabulary. */
  | { readonly kind: "logits" }
  /** The states themselves, after the last norm. */
  | { readonly kind: "states" }
  /** Projections of the states, of every token of a prompt. */
  | { readonly kind: "tokens"; readonly projection: Projection }
  /** The logits of a classifier: those of these tokens, or null for the only one of the checkpoint's layer `score`. */
  | { readonly kind: "classes"; readonly tokenIds: readonly number[] | null };

export const logitsOutput: DecoderOutput = { kind: "logits" };

/** Whether the output is made with the checkpoint's head, or a part of it. */
export function usesHead(output: DecoderOutput): boolean {
  return output.kind === "logits" || (output.kind === "classes" && output.tokenIds !== null);
}
