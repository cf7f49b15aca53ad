/** Makes tokens of the prompt or output less likely. Runs after all processors that may change the argmax. */
import type { SamplingParams } from "../../contract/sampling-params.ts";
import type { AddedRequest, BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";
import { TokenCounts } from "./token-counts.ts";

interface PenalisedRow {
  /** Rounded to float32, like every step of the arithmetic. */
  readonly repetitionPenalty: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly counts: TokenCounts;
}

/**
 * In this order, each rounded to float32: repetition (divides positive logits and multiplies negative ones) over prompt
 * and output; frequency times the count in the output; presence once for any count. As in vLLM's `apply_penalties`.
 */
export class PenaltiesLogitsProcessor extends BuiltInLogitsProcessor<PenalisedRow> {
  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, createRow);
    for (const [, { counts }] of this.rows.entries()) counts.addNewTokens();
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, state] of this.rows.entries()) penalise(logits.row(rowIndex), state);
    return logits;
  }
}

function createRow({ params, promptTokenIds, outputTokenIds }: AddedRequest): PenalisedRow | undefined {
  if (!isPenalised(params)) return undefined;
  const repetitionPenalty = Math.fround(params.repetitionPenalty);
  return {
    repetitionPenalty,
    frequencyPenalty: Math.fround(params.frequencyPenalty),
    presencePenalty: Math.fround(params.presencePenalty),
    counts: new TokenCounts(repetitionPenalty === 1 ? [] : promptTokenIds, outputTokenIds),
  };
}

function isPenalised({ repetitionPenalty, frequencyPenalty, presencePenalty }: SamplingParams): boolean {
  return repetitionPenalty !== 1 || frequencyPenalty !== 0 || presencePenalty !== 0;
}

function penalise(
  row: Float32Array,
  { repetitionPenalty, frequencyPenalty, presencePenalty, counts }: PenalisedRow,
): void {
  for (let index = 0; index < counts.numTokens; index++) {
    const tokenId = counts.tokenIds[index]!;
    const count = counts.outputCounts[index]!;
    let logit = row[tokenId]!;
    logit = Math.fround(logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty);
    if (count > 0) {
      logit = Math.fround(logit - Math.fround(frequencyPenalty * count));
      logit = Math.fround(logit - presencePenalty);
    }
    row[tokenId] = logit;
  }
}
