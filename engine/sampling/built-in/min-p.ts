/** Drops tokens that are much less likely than the most likely one. */
import type { EngineConfig } from "../../contract/config.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { RowStates } from "../contract/row-states.ts";
import { dropBelow, maximum } from "../row-operations.ts";

export class MinPLogitsProcessor extends LogitsProcessor {
  /** Distance from the largest logit above which a token is dropped: -ln(minP). */
  readonly #maxDistances = new RowStates<number>();

  constructor(config: EngineConfig) {
    super(config, config.device, {});
  }

  override isArgmaxInvariant(): boolean {
    return true;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#maxDistances.update(batchUpdate, ({ params }) => (params.minP > 0 ? -Math.log(params.minP) : undefined));
  }

  /** p < minP * max(p) is equivalent to logit < max(logit) + ln(minP), which needs no softmax. */
  override apply(logits: Logits): Logits {
    for (const [rowIndex, maxDistance] of this.#maxDistances.entries()) {
      const row = logits.row(rowIndex);
      dropBelow(row, maximum(row) - maxDistance);
    }
    return logits;
  }
}
