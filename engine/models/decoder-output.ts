/** What a decoder computes of the last states of its rows. */

export type DecoderOutput =
  /** The logits of the vocabulary. */
  | { readonly kind: "logits" }
  /** The states themselves, after the last norm. */
  | { readonly kind: "states" }
  /** The logits of a classifier: those of these tokens, or null for the only one of the checkpoint's layer `score`. */
  | { readonly kind: "classes"; readonly tokenIds: readonly number[] | null };

export const logitsOutput: DecoderOutput = { kind: "logits" };

/** Whether the output is made with the checkpoint's head, or a part of it. */
export function usesHead(output: DecoderOutput): boolean {
  return output.kind === "logits" || (output.kind === "classes" && output.tokenIds !== null);
}
