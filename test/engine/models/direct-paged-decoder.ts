/** Runs a paged decoder graph directly, without an engine: packed batches of any composition over blocks given by hand. */
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import type { IoBinding } from "../../../engine/runtime/io-binding.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

/** Part of a packed batch: what one sequence computes in a run. */
export interface SequenceRun {
  /** May be empty. */
  readonly tokenIds: readonly number[];
  readonly numComputed: number;
  /** Blocks in the order of the sequence's positions; -1 where none is mapped. */
  readonly blocks: readonly number[];
  /** Of each token, the row of the image pool that takes its place, or -1; left out, all are text. */
  readonly imageRows?: readonly number[];
  /** [3][tokens], where the decoder takes positions; left out, tokens have the places they stand at. */
  readonly positions?: readonly (readonly number[])[];
}

export interface PagedRun {
  readonly sequences: readonly SequenceRun[];
  /** Rows of the packed tokens whose logits are returned. */
  readonly logitRows: readonly number[];
  /** Block columns beyond those that the longest sequence needs. */
  readonly spareColumns?: number;
}

export interface PagedDecoderOptions {
  readonly numBlocks: number;
  /** Row-major [rows, hiddenSize]. */
  readonly imagePool?: Float32Array;
}

export class DirectPagedDecoder implements Disposable {
  readonly #model: BuiltModel;
  readonly #session: Session;
  readonly #binding: IoBinding;
  readonly #imagePool: Float32Array;
  /** By `{layer}.{part}`: row-major [numBlocks, blockSize, numKvHeads, headDim], the memory that runs write to. */
  readonly caches: ReadonlyMap<string, Float32Array>;

  constructor(model: BuiltModel, { numBlocks, imagePool }: PagedDecoderOptions) {
    const { decoder, externalDataFolder } = model;
    if (decoder.form !== "in-place" || decoder.kvLayout.kind !== "paged") throw new Error("the decoder is not paged");
    this.#model = model;
    this.#imagePool = imagePool ?? new Float32Array(decoder.hiddenSize);
    this.#session = Session.load(decoder.path, { device: "cpu", deviceId: 0, numThreads: 2, externalDataFolder });
    this.#binding = this.#session.createBinding();
    const shape = [numBlocks, decoder.kvLayout.blockSize, decoder.numKvHeads, decoder.headDim];
    const caches = new Map<string, Float32Array>();
    for (let layer = 0; layer < decoder.numLayers; layer++) {
      for (const part of ["key", "value"]) {
        // Whatever is read before it is written makes the result NaN.
        const values = new Float32Array(shape.reduce((product, size) => product * size)).fill(NaN);
        const tensor = Tensor.fromTypedArray("float32", values, shape);
        caches.set(`${layer}.${part}`, values);
        this.#binding.bindInput(`past.${layer}.${part}`, tensor);
        this.#binding.bindOutput(`present.${layer}.${part}`, tensor);
      }
    }
    this.caches = caches;
  }

  /** Row-major [logitRows.length, vocabSize]. */
  run({ sequences, logitRows, spareColumns = 0 }: PagedRun): Float32Array {
    const { hiddenSize, vocabSize, acceptsImages, takesPositions } = this.#model.decoder;
    const tokenIds = sequences.flatMap((sequence) => sequence.tokenIds);
    const numColumns = Math.max(...sequences.map(({ blocks }) => blocks.length)) + spareColumns;
    const table = sequences.flatMap(({ blocks }) =>
      Array.from({ length: numColumns }, (_, column) => blocks[column] ?? -1),
    );
    const cumulative = [0];
    for (const sequence of sequences) cumulative.push(cumulative.at(-1)! + sequence.tokenIds.length);

    // The graph computes at least one row.
    const rowsToCompute = logitRows.length === 0 ? [0] : logitRows;
    const inputs: Record<string, Tensor> = {
      input_ids: int64(tokenIds, [tokenIds.length]),
      cumulative_lengths: int32(cumulative, [cumulative.length]),
      past_lengths: int32(
        sequences.map(({ numComputed }) => numComputed),
        [sequences.length],
      ),
      block_table: int32(table, [sequences.length, numColumns]),
      logit_rows: int64(rowsToCompute, [rowsToCompute.length]),
      inverse_temperature: Tensor.fromTypedArray("float32", new Float32Array(rowsToCompute.length).fill(1), [
        rowsToCompute.length,
        1,
      ]),
    };
    if (acceptsImages) {
      const rows = sequences.flatMap((sequence) => sequence.imageRows ?? sequence.tokenIds.map(() => -1));
      const poolShape = [this.#imagePool.length / hiddenSize, hiddenSize];
      inputs.image_pool = Tensor.fromTypedArray("float32", this.#imagePool, poolShape);
      inputs.image_rows = int64(rows, [rows.length]);
    }
    if (takesPositions) {
      const axes = [0, 1, 2].flatMap((axis) =>
        sequences.flatMap(
          ({ positions, tokenIds: ids, numComputed }) =>
            positions?.[axis] ?? ids.map((_, index) => numComputed + index),
        ),
      );
      inputs.positions = int64(axes, [3, tokenIds.length]);
    }
    const logits = new Float32Array(rowsToCompute.length * vocabSize);
    using output = Tensor.fromTypedArray("float32", logits, [rowsToCompute.length, vocabSize]);
    for (const [name, tensor] of Object.entries(inputs)) this.#binding.bindInput(name, tensor);
    this.#binding.bindOutput("logits", output);
    this.#binding.run();
    for (const tensor of Object.values(inputs)) tensor[Symbol.dispose]();
    return logits.subarray(0, logitRows.length * vocabSize);
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }
}

function int64(values: readonly number[], shape: readonly number[]): Tensor {
  return Tensor.fromTypedArray("int64", BigInt64Array.from(values, BigInt), shape);
}

function int32(values: readonly number[], shape: readonly number[]): Tensor {
  return Tensor.fromTypedArray("int32", Int32Array.from(values), shape);
}
