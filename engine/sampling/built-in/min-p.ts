/** Drops tokens that are much less likely than the most likely one. */
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { dropBelow, maximum } from "../row-operations.ts";
import type { StepLogits } from "../step-logits.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

/** A row's state is the distance from its largest logit above which a token is dropped: -ln(minP). */
export class MinPLogitsProcessor extends BuiltInLogitsProcessor<number> {
  override isArgmaxInvariant(): boolean {
    return true;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ params }) => (params.minP > 0 ? -Math.log(params.minP) : undefined));
  }

  /** Leaves a deferred row to the sampler, which may not have to read it. */
  override apply(logits: Logits & Partial<Pick<StepLogits, "isDeferred">>): Logits {
    for (const [rowIndex, maxDistance] of this.rows.entries()) {
      if (logits.isDeferred?.(rowIndex) !== true) dropDistant(logits.row(rowIndex), maxDistance);
    }
    return logits;
  }
}

/** Drops the tokens of a scaled row that have less than `minP` of the probability of the most likely one. */
export function dropUnlikely(row: Float32Array, minP: number): void {
  dropDistant(row, -Math.log(minP));
}

/** p < minP * max(p) is equivalent to logit < max(logit) + ln(minP), which needs no softmax. */
function dropDistant(row: Float32Array, maxDistance: number): void {
  dropBelow(row, maximum(row) - maxDistance);
}
