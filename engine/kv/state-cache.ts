/** The memory of recurrent layers: for each row (a KV slot, or a snapshot of one) the state of every layer. */
import { EngineError } from "../contract/errors.ts";
import type { RecurrentShape } from "../models/built-model.ts";
import { stateShapes } from "../models/state-shapes.ts";
import { numElements } from "../runtime/element-type.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";

/** Inputs of the graph by name, for neighbouring rows. */
export interface StateView extends Disposable {
  readonly tensors: ReadonlyMap<string, Tensor>;
}

/** Bytes of the state of one sequence. All of it is float32. */
export function stateBytes(shape: RecurrentShape): number {
  return stateShapes(shape).reduce((sum, [, row]) => sum + numElements(row) * Float32Array.BYTES_PER_ELEMENT, 0);
}

/** In the host's memory. */
export class StateCache implements Disposable {
  /** By name: [numRows, ...shape of a row]. */
  readonly #tensors = new Map<string, Tensor<"float32">>();
  readonly #owned = new DisposableStack();

  /** @throws EngineError `invalid_configuration` if the memory cannot be reserved. */
  constructor(session: Pick<Session, "allocateTensor">, shape: RecurrentShape, numRows: number) {
    using owned = new DisposableStack();
    try {
      for (const [name, row] of stateShapes(shape)) {
        this.#tensors.set(name, owned.use(session.allocateTensor("float32", [numRows, ...row])));
      }
    } catch (cause) {
      throw new EngineError(
        "invalid_configuration",
        `The states of ${numRows} sequences, ${stateBytes(shape)} bytes each, do not fit into memory.`,
        { cause, setting: "maxNumSequences" },
      );
    }
    this.#owned.use(owned.move());
  }

  /** The caller disposes of it, and of the cache only afterwards. */
  view(firstRow: number, numRows: number): StateView {
    const owned = new DisposableStack();
    const tensors = new Map(
      [...this.#tensors].map(([name, tensor]) => {
        const row = tensor.shape.slice(1);
        return [name, owned.use(tensor.view(firstRow * numElements(row), [numRows, ...row]))] as const;
      }),
    );
    return { tensors, [Symbol.dispose]: () => owned.dispose() };
  }

  /** The state before a sequence's first token. */
  clear(row: number): void {
    this.#visitRows(row, (data, start, end) => data.fill(0, start, end));
  }

  copy(fromRow: number, toRow: number): void {
    this.#visitRows(fromRow, (data, start, end) => data.copyWithin(toRow * (end - start), start, end));
  }

  swap(first: number, second: number): void {
    this.#visitRows(first, (data, start, end) => {
      const kept = data.slice(start, end);
      const target = second * (end - start);
      data.copyWithin(start, target, target + (end - start));
      data.set(kept, target);
    });
  }

  [Symbol.dispose](): void {
    this.#owned.dispose();
  }

  #visitRows(row: number, visit: (data: Float32Array, start: number, end: number) => void): void {
    for (const { data, shape } of this.#tensors.values()) {
      const size = numElements(shape.slice(1));
      visit(data, row * size, (row + 1) * size);
    }
  }
}
