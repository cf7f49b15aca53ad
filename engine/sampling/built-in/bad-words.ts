/** Prevents the last token of a bad word from following its other tokens. */
import type { Logits } from "../contract/logits-processor.ts";
import type { SequenceBatchUpdate } from "./added-sequence.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

interface BadWords {
  readonly sequences: readonly (readonly number[])[];
  /** The live list. */
  readonly outputTokenIds: readonly number[];
}

/** Checks only the output: a word that starts in the prompt may be completed. */
export class BadWordsLogitsProcessor extends BuiltInLogitsProcessor<BadWords> {
  override updateState(batchUpdate: SequenceBatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ badWordsTokenIds: sequences, outputTokenIds }) =>
      sequences.length > 0 ? { sequences, outputTokenIds } : undefined,
    );
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { sequences, outputTokenIds }] of this.rows.entries()) {
      const row = logits.row(rowIndex);
      for (const sequence of sequences) {
        if (endsWithAllButLast(outputTokenIds, sequence)) row[sequence[sequence.length - 1]!] = -Infinity;
      }
    }
    return logits;
  }
}

function endsWithAllButLast(tokenIds: readonly number[], sequence: readonly number[]): boolean {
  const start = tokenIds.length - (sequence.length - 1);
  if (start < 0) return false;
  for (let index = 0; index < sequence.length - 1; index++) {
    if (tokenIds[start + index] !== sequence[index]) return false;
  }
  return true;
}
