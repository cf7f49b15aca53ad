/** The logits of drafts, which are sampled in later steps than the one that computed them. */
import type { Draft, Sequence } from "../scheduler/sequence.ts";

interface DraftRows {
  readonly draft: Draft;
  /** Row-major [at least draft.tokenIds.length + 1, vocabSize]. */
  readonly buffer: Float32Array;
}

/**
 * Mutable. Keeps a buffer for each sequence whose draft is followed, and a few free ones for later drafts. The scheduler
 * bounds the number of drafts.
 */
export class DraftLogits {
  readonly #vocabSize: number;
  readonly #rows = new Map<Sequence, DraftRows>();
  #free: Float32Array[] = [];

  constructor(vocabSize: number) {
    this.#vocabSize = vocabSize;
  }

  /** Takes the buffers of drafts that have ended back. Call it once a step. */
  releaseEnded(): void {
    for (const [sequence, { draft, buffer }] of this.#rows) {
      if (sequence.draft === draft) continue;
      this.#rows.delete(sequence);
      this.#free.push(buffer);
    }
  }

  /** Memory for the rows of the sequence's draft, to be filled: row-major [draft.tokenIds.length + 1, vocabSize]. */
  rowsFor(sequence: Sequence, draft: Draft): Float32Array {
    const length = (draft.tokenIds.length + 1) * this.#vocabSize;
    const index = this.#free.findIndex((buffer) => buffer.length >= length);
    // A free buffer that is too short is not kept: a longer one takes its place.
    const buffer = index === -1 ? new Float32Array(length) : this.#free.splice(index, 1)[0]!;
    if (index === -1) this.#free.pop();
    this.#rows.set(sequence, { draft, buffer });
    return buffer.subarray(0, length);
  }

  /** The logits after the sequence's newest token, [vocabSize]; null if that token is not computed yet. */
  rowAfterNewest(sequence: Sequence): Float32Array | null {
    const rows = this.#rows.get(sequence);
    if (rows === undefined || rows.draft !== sequence.draft) return null;
    const row = sequence.numTokens - rows.draft.firstToken;
    return rows.buffer.subarray(row * this.#vocabSize, (row + 1) * this.#vocabSize);
  }
}
