/** How many tokens an export may compute the logits of at once: it may know no other way than those of all. */

const MAX_LOGITS_BYTES = 64 * 2 ** 20;

/** Tokens of a prompt that an export computes in one run at most, where that computes the logits of each. */
export function maxExportedLogitsRows(vocabSize: number): number {
  return Math.max(1, Math.floor(MAX_LOGITS_BYTES / (vocabSize * Float32Array.BYTES_PER_ELEMENT)));
}
