/** Adds a request's biases to the logits of its tokens. */
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

/** At either limit, a token is practically forced or banned. */
const MAX_BIAS = 100;

interface TokenBiases {
  readonly tokenIds: Int32Array;
  /** [tokenIds.length] */
  readonly biases: Float32Array;
}

export class LogitBiasLogitsProcessor extends BuiltInLogitsProcessor<TokenBiases> {
  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ params: { logitBias } }) => {
      const entries = Object.entries(logitBias ?? {});
      if (entries.length === 0) return undefined;
      return {
        tokenIds: Int32Array.from(entries, ([tokenId]) => Number(tokenId)),
        biases: Float32Array.from(entries, ([, bias]) => Math.max(-MAX_BIAS, Math.min(MAX_BIAS, bias))),
      };
    });
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { tokenIds, biases }] of this.rows.entries()) {
      const row = logits.row(rowIndex);
      for (let index = 0; index < tokenIds.length; index++) row[tokenIds[index]!]! += biases[index]!;
    }
    return logits;
  }
}
