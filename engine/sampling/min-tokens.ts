/** Keeps a request from ending before it has `minTokens` tokens. */
import type { EngineConfig } from "../config.ts";
import { LogitsProcessor } from "./logits-processor.ts";
import type { BatchUpdate, Logits } from "./logits-processor.ts";
import { RowStates } from "./row-states.ts";

interface UnfinishedMinimum {
  readonly minTokens: number;
  /** The live list. */
  readonly outputTokenIds: readonly number[];
  /** The model's end tokens, also where the request ignores them, and the request's own stop tokens. */
  readonly stopTokenIds: readonly number[];
}

export class MinTokensLogitsProcessor extends LogitsProcessor {
  readonly #minimums = new RowStates<UnfinishedMinimum>();
  readonly #eosTokenIds: readonly number[];

  constructor(config: EngineConfig, eosTokenIds: readonly number[]) {
    super(config, config.device, {});
    this.#eosTokenIds = eosTokenIds;
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#minimums.update(batchUpdate, ({ params: { minTokens, stopTokenIds }, outputTokenIds }) =>
      minTokens > 0 ? { minTokens, outputTokenIds, stopTokenIds: [...this.#eosTokenIds, ...stopTokenIds] } : undefined,
    );
    for (const [rowIndex, { minTokens, outputTokenIds }] of this.#minimums.entries()) {
      if (outputTokenIds.length >= minTokens) this.#minimums.delete(rowIndex);
    }
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { stopTokenIds }] of this.#minimums.entries()) {
      const row = logits.row(rowIndex);
      for (const tokenId of stopTokenIds) row[tokenId] = -Infinity;
    }
    return logits;
  }
}
