/**
 * Prevents a request from ending before it has `minTokens` tokens. A complete structured output that cannot continue
 * ends anyway: a longer text would not match the form, and without its end token no token would be left.
 */
import type { EngineConfig } from "../../contract/config.ts";
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

interface UnfinishedMinimum {
  readonly minTokens: number;
  /** The live list. */
  readonly outputTokenIds: readonly number[];
  /** The model's end tokens, even if the request ignores them, and the request's own stop tokens. */
  readonly stopTokenIds: readonly number[];
  readonly isStructured: boolean;
}

export class MinTokensLogitsProcessor extends BuiltInLogitsProcessor<UnfinishedMinimum> {
  readonly #eosTokenIds: readonly number[];

  constructor(config: EngineConfig, eosTokenIds: readonly number[]) {
    super(config);
    this.#eosTokenIds = eosTokenIds;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ params, outputTokenIds }) => {
      const { minTokens, structuredOutput } = params;
      if (minTokens === 0) return undefined;
      const stopTokenIds = [...this.#eosTokenIds, ...params.stopTokenIds];
      return { minTokens, outputTokenIds, stopTokenIds, isStructured: structuredOutput !== null };
    });
    for (const [rowIndex, { minTokens, outputTokenIds }] of this.rows.entries()) {
      if (outputTokenIds.length >= minTokens) this.rows.delete(rowIndex);
    }
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { stopTokenIds, isStructured }] of this.rows.entries()) {
      const row = logits.row(rowIndex);
      if (isStructured && !allowsOthers(row, stopTokenIds)) continue;
      for (const tokenId of stopTokenIds) row[tokenId] = -Infinity;
    }
    return logits;
  }
}

/** Whether any other token is left. */
function allowsOthers(row: Float32Array, tokenIds: readonly number[]): boolean {
  for (let tokenId = 0; tokenId < row.length; tokenId++) {
    if (row[tokenId]! > -Infinity && !tokenIds.includes(tokenId)) return true;
  }
  return false;
}
