/**
 * Snapshots of recurrent states in the paged layout. A snapshot is the state after the last token of a complete block and
 * has the block's hash, which covers everything before it. A prompt that starts with these blocks goes on from there.
 */
import { invariant } from "../contract/errors.ts";

/** Mutable; knows which row keeps which state. The decoder copies the states. */
export class BlockSnapshots {
  /** Rows without a snapshot; the last is taken first. */
  readonly #free: number[];
  /** By hash, the least recently used first. */
  readonly #rows = new Map<string, number>();

  /** @param firstRow The rows from here on are for snapshots. */
  constructor(firstRow: number, numRows: number) {
    this.#free = Array.from({ length: numRows }, (_, index) => firstRow + numRows - 1 - index);
  }

  has(hash: string): boolean {
    return this.#rows.has(hash);
  }

  /** The row of a snapshot that exists. Counts as a use. */
  rowOf(hash: string): number {
    const row = this.#rows.get(hash);
    invariant(row !== undefined, "a snapshot is used that does not exist");
    this.#rows.delete(hash);
    this.#rows.set(hash, row);
    return row;
  }

  /** A row for a state to come: a free one, or that of the least recently used snapshot. Null if all rows wait. */
  take(): number | null {
    const [oldest] = this.#rows.keys();
    if (this.#free.length === 0 && oldest !== undefined) this.drop(oldest);
    return this.#free.pop() ?? null;
  }

  /** The row has its state now. If there is a snapshot of this hash already, the row is free again. */
  keep(hash: string, row: number): void {
    if (this.#rows.has(hash)) this.release(row);
    else this.#rows.set(hash, row);
  }

  /** Gives a row back that `take` returned and that got no state. */
  release(row: number): void {
    this.#free.push(row);
  }

  /** Forgets the snapshot: the keys and values of its block are gone. Safe for a hash without one. */
  drop(hash: string): void {
    const row = this.#rows.get(hash);
    if (row === undefined) return;
    this.#rows.delete(hash);
    this.#free.push(row);
  }
}
