/** The memory of recurrent layers: for each row (a KV slot, or a snapshot of one) the state of every layer. */
import { EngineError } from "../contract/errors.ts";
import type { RecurrentShape } from "../models/built-model.ts";
import { stateShapes } from "../models/state-shapes.ts";
import type { StateShape } from "../models/state-shapes.ts";
import { bytesPerElement, numElements, typedArrayOver } from "../runtime/element-type.ts";
import type { TensorElementType } from "../runtime/element-type.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";

/** Inputs of the graph by name, for neighbouring rows. */
export interface StateView extends Disposable {
  readonly tensors: ReadonlyMap<string, Tensor>;
}

/** Binds the states before and after a run to the view's memory. */
export function bindStates(binding: IoBinding, { tensors }: StateView): void {
  for (const [name, tensor] of tensors) {
    binding.bindInput(`past.${name}`, tensor);
    binding.bindOutput(`present.${name}`, tensor);
  }
}

/** Bytes of the state of one sequence. */
export function stateBytes(shape: RecurrentShape): number {
  return stateShapes(shape).reduce(
    (sum, { elementType, shape: row }) => sum + numElements(row) * bytesPerElement(elementType),
    0,
  );
}

/** In the memory where the session's kernels read and write. */
export class StateCache implements Disposable {
  /** By name: [numRows, ...shape of a row]. */
  readonly #tensors = new Map<string, Tensor<StateShape["elementType"]>>();
  readonly #owned = new DisposableStack();

  /**
   * On a device, the rows have undefined contents; on the host, they are zeros.
   *
   * @throws EngineError `invalid_configuration` if the memory cannot be reserved.
   */
  constructor(session: Pick<Session, "allocateTensor">, shape: RecurrentShape, numRows: number) {
    using owned = new DisposableStack();
    try {
      for (const { name, elementType, shape: row } of stateShapes(shape)) {
        this.#tensors.set(name, owned.use(session.allocateTensor(elementType, [numRows, ...row])));
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
      [...this.#tensors].map(([name, tensor]) => [name, owned.use(rowsOf(tensor, firstRow, numRows))] as const),
    );
    return { tensors, [Symbol.dispose]: () => owned.dispose() };
  }

  /** The state before a sequence's first token. */
  clear(row: number): void {
    for (const tensor of this.#tensors.values()) {
      using target = rowsOf(tensor, row, 1);
      if (target.isOnDevice) target.copyFrom(typedArrayOver(target.elementType, new ArrayBuffer(target.byteLength)));
      else target.data.fill(0);
    }
  }

  copy(fromRow: number, toRow: number): void {
    for (const tensor of this.#tensors.values()) {
      using source = rowsOf(tensor, fromRow, 1);
      using target = rowsOf(tensor, toRow, 1);
      target.copyFromTensor(source);
    }
  }

  /** In the host's memory. */
  swap(first: number, second: number): void {
    for (const tensor of this.#tensors.values()) {
      using left = rowsOf(tensor, first, 1);
      using right = rowsOf(tensor, second, 1);
      const kept = left.data.slice();
      left.copyFromTensor(right);
      right.copyFrom(kept);
    }
  }

  [Symbol.dispose](): void {
    this.#owned.dispose();
  }
}

/** The caller disposes of the view. */
function rowsOf<E extends TensorElementType>(tensor: Tensor<E>, firstRow: number, numRows: number): Tensor<E> {
  const row = tensor.shape.slice(1);
  return tensor.view(firstRow * numElements(row), [numRows, ...row]);
}
