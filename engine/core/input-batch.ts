/** The rows of logits: the sequences that sample. A row stays in place from step to step. */
import { invariant } from "../contract/errors.ts";
import type { AddedSequence, SequenceBatchUpdate } from "../sampling/built-in/added-sequence.ts";
import type { MovedRequest } from "../sampling/contract/logits-processor.ts";
import type { Sequence } from "../scheduler/sequence.ts";

/**
 * Mutable. A step changes it in this order: `remove`, `add`, `condense`, `swap`, `takeBatchUpdate`. `remove` may also be
 * called after a step. The bookkeeping is that of vLLM's persistent batch: an added sequence takes the lowest hole, the
 * highest rows move down into the remaining holes, and only holes behind the last row are reported as removed.
 */
export class InputBatch {
  /** Null is a hole. No hole is left after a step's changes. */
  readonly #rows: (Sequence | null)[] = [];
  readonly #rowIndexes = new Map<Sequence, number>();
  /** Rows removed and not refilled, highest first, so that `pop` returns the lowest. */
  #holes: number[] = [];
  #added: AddedSequence[] = [];
  #moved: MovedRequest[] = [];

  get numRows(): number {
    return this.#rowIndexes.size;
  }

  has(sequence: Sequence): boolean {
    return this.#rowIndexes.has(sequence);
  }

  rowIndexOf(sequence: Sequence): number {
    const rowIndex = this.#rowIndexes.get(sequence);
    invariant(rowIndex !== undefined, `request ${sequence.requestId} has no row in the batch`);
    return rowIndex;
  }

  /** By row index. The live list; read it between `takeBatchUpdate` and the changes of the next step. */
  get sequences(): readonly Sequence[] {
    return this.#rows as readonly Sequence[];
  }

  /** The rows as they would be after `replace` and `groupBy`, without any change. */
  plan(sequences: readonly Sequence[], groupOf: (sequence: Sequence) => number): readonly Sequence[] {
    const planned = new InputBatch();
    this.#rows.forEach((sequence, rowIndex) => {
      if (sequence === null) planned.#rows[rowIndex] = null;
      else planned.#place(sequence, rowIndex);
    });
    planned.#holes = [...this.#holes];
    planned.replace(sequences);
    planned.groupBy(groupOf);
    return planned.sequences;
  }

  /** Makes `sequences` the batch: removes sequences that are not listed, adds new ones in order, condenses. */
  replace(sequences: readonly Sequence[]): void {
    const listed = new Set(sequences);
    for (const sequence of this.#rows) if (sequence !== null && !listed.has(sequence)) this.remove(sequence);
    for (const sequence of sequences) if (!this.has(sequence)) this.add(sequence);
    this.condense();
  }

  remove(sequence: Sequence): void {
    invariant(this.#added.length === 0 && this.#moved.length === 0, "a row is removed after rows were added or moved");
    const rowIndex = this.rowIndexOf(sequence);
    this.#rows[rowIndex] = null;
    this.#rowIndexes.delete(sequence);
    const position = this.#holes.findIndex((hole) => hole < rowIndex);
    this.#holes.splice(position === -1 ? this.#holes.length : position, 0, rowIndex);
  }

  /** Returns the row index: the lowest hole, or the end. */
  add(sequence: Sequence): number {
    const index = this.#holes.pop() ?? this.#rows.length;
    this.#place(sequence, index);
    this.#added.push({
      index,
      params: sequence.samplingParams,
      promptTokenIds: sequence.promptTokenIds,
      outputTokenIds: sequence.outputTokenIds,
      badWordsTokenIds: sequence.badWordsTokenIds,
      beginSuppressedTokenIds: sequence.beginSuppressedTokenIds,
      grammar: sequence.grammar,
      thinkingBudget: sequence.thinkingBudget,
    });
    return index;
  }

  /** Moves the highest rows into the lowest holes until the rows are contiguous. */
  condense(): void {
    let last = this.#rows.length - 1;
    while (this.#holes.length > 0 && this.numRows > 0) {
      while (this.#rows[last] === null) last--;
      const hole = this.#holes.at(-1)!;
      if (hole >= last) break;
      this.#holes.pop();
      this.#place(this.#rows[last]!, hole);
      this.#rows[last] = null;
      this.#moved.push({ from: last, to: hole, directionality: "unidirectional" });
      last--;
    }
    this.#rows.length = this.numRows;
  }

  swap(left: number, right: number): void {
    const sequence = this.sequences[left]!;
    this.#place(this.sequences[right]!, left);
    this.#place(sequence, right);
    this.#moved.push({ from: left, to: right, directionality: "swap" });
  }

  /**
   * Swaps rows until their groups ascend. The order within a group is arbitrary. Does nothing if the rows are in order.
   */
  groupBy(groupOf: (sequence: Sequence) => number): void {
    const wanted = this.sequences.map(groupOf).sort((left, right) => left - right);
    for (let rowIndex = 0; rowIndex < wanted.length; rowIndex++) {
      if (groupOf(this.sequences[rowIndex]!) === wanted[rowIndex]) continue;
      let other = rowIndex + 1;
      while (groupOf(this.sequences[other]!) !== wanted[rowIndex]) other++;
      this.swap(rowIndex, other);
    }
  }

  /** The changes since the last call; null if there were none. */
  takeBatchUpdate(): SequenceBatchUpdate | null {
    const batchUpdate = { batchSize: this.numRows, removed: this.#holes, added: this.#added, moved: this.#moved };
    const isUnchanged = this.#holes.length === 0 && this.#added.length === 0 && this.#moved.length === 0;
    this.#holes = [];
    this.#added = [];
    this.#moved = [];
    return isUnchanged ? null : batchUpdate;
  }

  #place(sequence: Sequence, rowIndex: number): void {
    this.#rows[rowIndex] = sequence;
    this.#rowIndexes.set(sequence, rowIndex);
  }
}
