/** Takes the place of the sampler in an engine that computes embeddings or scores: the row of a prompt's last token. */
import { EngineError } from "../contract/errors.ts";
import type { SamplingRow } from "../sampling/sampler.ts";
import type { StepLogits } from "../sampling/step-logits.ts";

export type PooledRow =
  | {
      readonly kind: "pooled";
      /** [outputWidth]: the state of the prompt's last token after the last norm, or the logits of the classes;
       * or of all tokens, [numPromptTokens, outputWidth]. */
      readonly values: Float32Array;
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
    return rows.map((_, rowIndex) => pooled(this.#rows.row(rowIndex).slice()));
  }
}

/** Fails if a number is not finite. */
export function pooled(values: Float32Array): PooledRow {
  if (values.every(Number.isFinite)) return { kind: "pooled", values };
  const error = new EngineError("runtime_failed", "The model returned numbers that are not finite.");
  return { kind: "failed", error };
}
