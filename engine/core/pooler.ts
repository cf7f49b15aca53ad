/** Takes the place of the sampler in an engine that computes embeddings: the state of a prompt's last token. */
import { EngineError } from "../contract/errors.ts";
import type { SamplingRow } from "../sampling/sampler.ts";
import type { StepLogits } from "../sampling/step-logits.ts";

export type PooledRow =
  | {
      readonly kind: "pooled";
      /** [hiddenSize], after the last norm. */
      readonly embedding: Float32Array;
    }
  | { readonly kind: "failed"; readonly error: EngineError };

export class Pooler {
  readonly #rows: StepLogits;

  /** @param rows Memory of each step's states. */
  constructor(rows: StepLogits) {
    this.#rows = rows;
  }

  /** Copies row i for `rows[i]`. A row fails if it is not finite. */
  sample(rows: readonly SamplingRow[]): PooledRow[] {
    this.#rows.read(() => true);
    return rows.map((_, rowIndex) => {
      const embedding = this.#rows.row(rowIndex).slice();
      if (embedding.every(Number.isFinite)) return { kind: "pooled", embedding };
      const error = new EngineError("runtime_failed", "The model returned an embedding that has no finite numbers.");
      return { kind: "failed", error };
    });
  }
}
