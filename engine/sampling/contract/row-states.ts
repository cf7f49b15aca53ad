/** State by row of the persistent batch, for processors that few requests use. */
import type { BatchUpdate } from "./logits-processor.ts";

/** The part of a batch update that moves state, for requests that have at least a row. */
export interface RowChanges<Added extends { readonly index: number }> extends Pick<BatchUpdate, "removed" | "moved"> {
  readonly added: readonly Added[];
}

/** Mutable map of row index to state. A row without an entry does not use the processor. */
export class RowStates<State> {
  readonly #states = new Map<number, State>();

  get size(): number {
    return this.#states.size;
  }

  get(rowIndex: number): State | undefined {
    return this.#states.get(rowIndex);
  }

  entries(): IterableIterator<[rowIndex: number, state: State]> {
    return this.#states.entries();
  }

  delete(rowIndex: number): void {
    this.#states.delete(rowIndex);
  }

  /**
   * Replays a batch update in order: removed, added, moved. `createState` returns undefined for a request that does not
   * use the processor; the row's earlier state is then discarded too.
   */
  update<Added extends { readonly index: number }>(
    changes: RowChanges<Added> | null,
    createState: (request: Added) => State | undefined,
  ): void {
    if (changes === null) return;
    for (const rowIndex of changes.removed) this.#states.delete(rowIndex);
    for (const request of changes.added) this.#set(request.index, createState(request));
    if (this.#states.size === 0) return;
    for (const { from, to, directionality } of changes.moved) {
      const moved = this.#states.get(from);
      this.#set(from, directionality === "swap" ? this.#states.get(to) : undefined);
      this.#set(to, moved);
    }
  }

  #set(rowIndex: number, state: State | undefined): void {
    if (state === undefined) this.#states.delete(rowIndex);
    else this.#states.set(rowIndex, state);
  }
}
