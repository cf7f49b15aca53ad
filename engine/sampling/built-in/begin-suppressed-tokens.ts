/** Keeps tokens from being the first of an output. */
import type { Logits } from "../contract/logits-processor.ts";
import type { SequenceBatchUpdate } from "./added-sequence.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

interface EmptyOutput {
  readonly tokenIds: readonly number[];
  /** The live list. */
  readonly outputTokenIds: readonly number[];
}

/** `begin_suppress_tokens` of transformers. Uses a row until it has a token. */
export class BeginSuppressedTokensLogitsProcessor extends BuiltInLogitsProcessor<EmptyOutput> {
  override updateState(batchUpdate: SequenceBatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ beginSuppressedTokenIds: tokenIds, outputTokenIds }) =>
      tokenIds === undefined ? undefined : { tokenIds, outputTokenIds },
    );
    for (const [rowIndex, { outputTokenIds }] of this.rows.entries()) {
      if (outputTokenIds.length > 0) this.rows.delete(rowIndex);
    }
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { tokenIds }] of this.rows.entries()) {
      const row = logits.row(rowIndex);
      for (const tokenId of tokenIds) row[tokenId] = -Infinity;
    }
    return logits;
  }
}
