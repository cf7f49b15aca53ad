/**
 * Lets a request say which token it wants: every other one becomes impossible. Of no use but to show how a processor
 * knows its rows; requests that do not ask for it cost nothing.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=steering.target-token:TargetToken npm start
 *     curl ... -d '{"prompt": "a", "vllm_xargs": {"target_token": 67}}'
 */
import { LogitsProcessor } from "fovea";
import type { BatchUpdate, Logits, SamplingParams } from "fovea";

export class TargetToken extends LogitsProcessor {
  /** Target by row, only for requests that have one. */
  readonly #targets = new Map<number, number>();

  /** An error thrown here is answered with 400. */
  static override validateParams({ extraArgs }: SamplingParams): void {
    const target = extraArgs.target_token;
    if (target === undefined || (Number.isInteger(target) && Number(target) >= 0)) return;
    throw new Error(`target_token must be a token id, got ${JSON.stringify(target)}.`);
  }

  /** It changes the most likely token, so greedy requests need it too. */
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    if (batchUpdate === null) return;
    for (const row of batchUpdate.removed) this.#targets.delete(row);
    for (const { index, params } of batchUpdate.added) this.#put(index, params.extraArgs.target_token);
    for (const { from, to, directionality } of batchUpdate.moved) {
      const [moved, replaced] = [this.#targets.get(from), this.#targets.get(to)];
      this.#put(to, moved);
      this.#put(from, directionality === "swap" ? replaced : undefined);
    }
  }

  override apply(logits: Logits): Logits {
    for (const [index, target] of this.#targets) {
      if (target >= logits.vocabSize) throw new Error(`target_token is ${target}, of ${logits.vocabSize} tokens`);
      const row = logits.row(index);
      const kept = row[target]!;
      row.fill(Number.NEGATIVE_INFINITY);
      row[target] = kept;
    }
    return logits;
  }

  /** The row may have belonged to a request with a target, and the new request may have none. */
  #put(row: number, target: unknown): void {
    if (typeof target === "number") this.#targets.set(row, target);
    else this.#targets.delete(row);
  }
}
