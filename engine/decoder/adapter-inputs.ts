/** The inputs of runs over KV slots that say which adapter computes each token. */
import type { AdapterShape } from "../models/built-model.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { DecoderBinding } from "./decoder-binding.ts";

/** Mutable: fill `ids`, then bind. */
export class AdapterInputs {
  /** [numTokens]: adapters from 1 on, or 0. */
  readonly ids: BigInt64Array;
  readonly #shape: AdapterShape;
  /** The adapters whose columns are bound; null before. */
  #bound: string | null = null;

  constructor(shape: AdapterShape, numTokens: number) {
    this.#shape = shape;
    this.ids = new BigInt64Array(numTokens);
  }

  /** Has an effect only if the adapters of the run are other ones than those of the last call. */
  bind(run: DecoderBinding): void {
    const active = [...new Set(this.ids)].map(Number).sort((left, right) => left - right);
    const key = active.join();
    if (key === this.#bound) return;
    if (this.#bound === null) {
      run.setInput("adapter_ids", Tensor.fromTypedArray("int64", this.ids, [this.ids.length]));
    }
    this.#bound = key;
    if (!this.#shape.takesColumns) return;
    const columns = BigInt64Array.from(this.#columnsOf(active), BigInt);
    run.setInput("adapter_columns", Tensor.fromTypedArray("int64", columns, [columns.length]));
  }

  #columnsOf(active: readonly number[]): number[] {
    const columns: number[] = [];
    let first = 0;
    this.#shape.ranks.forEach((rank, index) => {
      if (active.includes(index + 1)) for (let column = 0; column < rank; column++) columns.push(first + column);
      first += rank;
    });
    return columns;
  }
}
