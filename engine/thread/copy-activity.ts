/** Which copies of the model have work, in memory that their threads share. */

/** One of several copies, as its thread sees the others. */
export class CopyActivity {
  readonly #cells: Int32Array;
  readonly #index: number;

  /**
   * @param buffer Of `createBuffer`; the same for all copies.
   * @param index Of this copy.
   */
  constructor(buffer: SharedArrayBuffer, index: number) {
    this.#cells = new Int32Array(buffer);
    this.#index = index;
  }

  static createBuffer(numCopies: number): SharedArrayBuffer {
    return new SharedArrayBuffer(numCopies * Int32Array.BYTES_PER_ELEMENT);
  }

  set isBusy(isBusy: boolean) {
    Atomics.store(this.#cells, this.#index, Number(isBusy));
  }

  get othersRest(): boolean {
    for (let index = 0; index < this.#cells.length; index++) {
      if (index !== this.#index && Atomics.load(this.#cells, index) === 1) return false;
    }
    return true;
  }
}
