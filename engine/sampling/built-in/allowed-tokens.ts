/** Excludes all tokens except those that a request allows. */
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

interface AllowedTokens {
  readonly tokenIds: Int32Array;
  /** [tokenIds.length]; keeps their logits while the row is filled. */
  readonly kept: Float32Array;
}

export class AllowedTokensLogitsProcessor extends BuiltInLogitsProcessor<AllowedTokens> {
  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ params: { allowedTokenIds } }) =>
      allowedTokenIds === null
        ? undefined
        : { tokenIds: Int32Array.from(allowedTokenIds), kept: new Float32Array(allowedTokenIds.length) },
    );
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { tokenIds, kept }] of this.rows.entries()) {
      const row = logits.row(rowIndex);
      for (let index = 0; index < tokenIds.length; index++) kept[index] = row[tokenIds[index]!]!;
      row.fill(-Infinity);
      for (let index = 0; index < tokenIds.length; index++) row[tokenIds[index]!] = kept[index]!;
    }
    return logits;
  }
}
