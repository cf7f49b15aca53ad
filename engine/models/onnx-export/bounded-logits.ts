/** Bounds the logits that an export computes at once: some exports always compute those of all tokens. */

const MAX_LOGITS_BYTES = 64 * 2 ** 20;

/** Maximum number of prompt tokens per run for an export that computes the logits of each. */
export function maxExportedLogitsRows(vocabSize: number): number {
  return Math.max(1, Math.floor(MAX_LOGITS_BYTES / (vocabSize * Float32Array.BYTES_PER_ELEMENT)));
}
