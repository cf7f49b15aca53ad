/**
 * States of the recurrent layers of an export, which reads them and writes new ones: for each row (a KV slot, or a
 * snapshot of one) the state of every layer. A run reads a row and writes into a spare one; then the two swap roles.
 */
import type { ExportedState } from "../models/built-model.ts";
import { numElements } from "../runtime/element-type.ts";
import { Tensor } from "../runtime/tensor.ts";
import { createPastNumbers, type PastNumbers } from "./past-numbers.ts";

/** Mutable. In the host's memory. */
export class PastStates {
  readonly #states: readonly ExportedState[];
  /** By row: a buffer for each state. */
  readonly #rows: (readonly PastNumbers[])[];
  #spare: readonly PastNumbers[];

  constructor(states: readonly ExportedState[], numRows: number) {
    this.#states = states;
    const createRow = (): readonly PastNumbers[] =>
      states.map(({ elementType, shape }) => createPastNumbers(elementType, numElements(shape)));
    this.#rows = Array.from({ length: numRows }, createRow);
    this.#spare = createRow();
  }

  /** The row's states as tensors, [1, ...shape], in the order of the graph's. */
  past(row: number): Tensor[] {
    return this.#tensorsOver(this.#rows[row]!);
  }

  /** The tensors into which a run writes. `keepPresent` makes them a row's states. */
  present(): Tensor[] {
    return this.#tensorsOver(this.#spare);
  }

  keepPresent(row: number): void {
    [this.#spare, this.#rows[row]] = [this.#rows[row]!, this.#spare];
  }

  /** The states before a sequence's first token. */
  clear(row: number): void {
    for (const buffer of this.#rows[row]!) buffer.fill(0);
  }

  copy(fromRow: number, toRow: number): void {
    this.#rows[fromRow]!.forEach((buffer, index) => this.#rows[toRow]![index]!.set(buffer));
  }

  swap(first: number, second: number): void {
    [this.#rows[first], this.#rows[second]] = [this.#rows[second]!, this.#rows[first]!];
  }

  #tensorsOver(buffers: readonly PastNumbers[]): Tensor[] {
    return this.#states.map(({ elementType, shape }, index) =>
      Tensor.fromTypedArray(elementType, buffers[index]!, [1, ...shape]),
    );
  }
}
