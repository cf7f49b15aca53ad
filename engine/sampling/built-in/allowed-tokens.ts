/** Excludes all tokens except those that a request allows. */
import type { EngineConfig } from "../../contract/config.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { RowStates } from "../contract/row-states.ts";

interface AllowedTokens {
  readonly tokenIds: Int32Array;
  /** [tokenIds.length]; keeps their logits while the row is filled. */
  readonly kept: Float32Array;
}

export class AllowedTokensLogitsProcessor extends LogitsProcessor {
  readonly #allowed = new RowStates<AllowedTokens>();

  constructor(config: EngineConfig) {
    super(config, config.device, {});
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#allowed.update(batchUpdate, ({ params: { allowedTokenIds } }) =>
      allowedTokenIds === null
        ? undefined
        : { tokenIds: Int32Array.from(allowedTokenIds), kept: new Float32Array(allowedTokenIds.length) },
    );
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { tokenIds, kept }] of this.#allowed.entries()) {
      const row = logits.row(rowIndex);
      for (let index = 0; index < tokenIds.length; index++) kept[index] = row[tokenIds[index]!]!;
      row.fill(-Infinity);
      for (let index = 0; index < tokenIds.length; index++) row[tokenIds[index]!] = kept[index]!;
    }
    return logits;
  }
}
