/**
 * Image features where the decoder computes: the vision encoder writes an image's rows into the pool, and a run reads rows
 * by index, so features cross to no host. Rows at the end take the features of images that have no rows of their own.
 *
 * `ViewedPool` is for devices whose tensors can be views; `graph-pool.ts` is for others.
 */
import type { DeviceName } from "../contract/config.ts";
import { invariant } from "../contract/errors.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";

/** Neighbouring rows of the pool, which one image holds. */
export interface PooledRows {
  readonly firstRow: number;
  readonly numRows: number;
}

export interface FeaturePoolSizes {
  /** Numbers of a row. */
  readonly width: number;
  /** Rows for images. */
  readonly numRows: number;
  /** The most rows of a run. */
  readonly maxRunRows: number;
}

export interface FeaturePool extends Disposable {
  readonly device: DeviceName;
  /** Null if no gap between images is large enough. */
  take(numRows: number): PooledRows | null;
  /** The rows' numbers stay until another image takes the rows. */
  release(rows: PooledRows): void;
  /** Writes an image's rows: `fill` receives a tensor [1, numRows, width] in the device's memory, only for the call. */
  write(rows: PooledRows, fill: (target: Tensor<"float32">) => void): void;
  /** Whether rows are being copied by another thread. */
  readonly isBeingRead: boolean;
  /** Copies an image's rows into `target`, row-major [numRows, width]. The rows must not be released before. */
  read(rows: PooledRows, target: Float32Array): Promise<void>;
  /**
   * Copies features for the next run, which overwrite those of the last one.
   *
   * @param features Row-major [rows, width].
   * @returns Index of the first row.
   */
  placeForRun(features: Float32Array): number;
}

/** Which rows images hold; mutable. */
export class PoolRows {
  readonly numRows: number;
  /** An image begins at a multiple of this row. */
  readonly #step: number;
  /** Ascending, without two neighbours that could be one. */
  #free: PooledRows[];

  constructor(numRows: number, step: number) {
    this.#step = step;
    this.numRows = Math.ceil(numRows / step) * step;
    this.#free = this.numRows === 0 ? [] : [{ firstRow: 0, numRows: this.numRows }];
  }

  take(numRows: number): PooledRows | null {
    const wanted = Math.ceil(numRows / this.#step) * this.#step;
    const index = this.#free.findIndex((gap) => gap.numRows >= wanted);
    const gap = this.#free[index];
    if (gap === undefined) return null;
    const rest = { firstRow: gap.firstRow + wanted, numRows: gap.numRows - wanted };
    this.#free.splice(index, 1, ...(rest.numRows > 0 ? [rest] : []));
    return { firstRow: gap.firstRow, numRows };
  }

  release({ firstRow, numRows }: PooledRows): void {
    const gap = { firstRow, numRows: Math.ceil(numRows / this.#step) * this.#step };
    const sorted = [...this.#free, gap].sort((left, right) => left.firstRow - right.firstRow);
    const joined: PooledRows[] = [];
    for (const next of sorted) {
      const last = joined.at(-1);
      const end = last === undefined ? -1 : last.firstRow + last.numRows;
      invariant(next.firstRow >= end, `rows of images are released twice, at row ${next.firstRow}`);
      if (last === undefined || end < next.firstRow) joined.push(next);
      else joined[joined.length - 1] = { firstRow: last.firstRow, numRows: last.numRows + next.numRows };
    }
    this.#free = joined;
  }
}

/** Kernels of a GPU expect the alignment of an allocation. */
const ALIGNMENT_BYTES = 256;

/** Mutable; owns the memory. */
export class ViewedPool implements FeaturePool {
  readonly device: DeviceName;
  readonly width: number;
  /** float32 [rows, width]: rows of images, then those of a run. */
  readonly tensor: Tensor<"float32">;
  readonly #rows: PoolRows;
  #numReads = 0;

  constructor(session: Pick<Session, "allocateTensor" | "device">, { width, numRows, maxRunRows }: FeaturePoolSizes) {
    this.device = session.device;
    this.width = width;
    this.#rows = new PoolRows(numRows, rowStep(width));
    this.tensor = session.allocateTensor("float32", [this.#rows.numRows + Math.max(maxRunRows, 1), width]);
    // A run without images reads the first row, and uses none of its numbers.
    this.#copy(new Float32Array(width), 0);
  }

  take(numRows: number): PooledRows | null {
    return this.#rows.take(numRows);
  }

  release(rows: PooledRows): void {
    this.#rows.release(rows);
  }

  /** [1, numRows, width]. The caller disposes of it. */
  view({ firstRow, numRows }: PooledRows): Tensor<"float32"> {
    return this.tensor.view(firstRow * this.width, [1, numRows, this.width]);
  }

  write(rows: PooledRows, fill: (target: Tensor<"float32">) => void): void {
    using target = this.view(rows);
    fill(target);
  }

  get isBeingRead(): boolean {
    return this.#numReads > 0;
  }

  /** See `Tensor.copyIntoBeside`. */
  async read(rows: PooledRows, target: Float32Array): Promise<void> {
    using view = this.view(rows);
    this.#numReads++;
    try {
      await view.copyIntoBeside(target);
    } finally {
      this.#numReads--;
    }
  }

  placeForRun(features: Float32Array): number {
    this.#copy(features, this.#rows.numRows);
    return this.#rows.numRows;
  }

  [Symbol.dispose](): void {
    this.tensor[Symbol.dispose]();
  }

  #copy(features: Float32Array, firstRow: number): void {
    using view = this.tensor.view(firstRow * this.width, [features.length / this.width, this.width]);
    view.copyFrom(features);
  }
}

/** The fewest rows whose bytes are a multiple of the alignment. */
function rowStep(width: number): number {
  const rowBytes = width * Float32Array.BYTES_PER_ELEMENT;
  let step = 1;
  while ((step * rowBytes) % ALIGNMENT_BYTES !== 0) step *= 2;
  return step;
}
