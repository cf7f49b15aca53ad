/** Steps of a paged decoder whose inputs stay where they are: device tensors that are overwritten between runs. */
import type { DecoderGraph } from "../../engine/models/built-model.ts";
import type { TensorArrays } from "../../engine/runtime/element-type.ts";
import type { IoBinding } from "../../engine/runtime/io-binding.ts";
import type { RunOptions } from "../../engine/runtime/run-options.ts";
import type { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { encode, randomNumbers, requireFloat } from "./numbers.ts";

/** Keys and values of a session, filled with the same numbers for the same seed. */
export class PackedCaches implements Disposable {
  readonly tensors = new Map<string, Tensor>();

  constructor(
    session: Session,
    { numLayers, numKvHeads, headDim, kvElementType }: DecoderGraph,
    [numBlocks, blockSize]: readonly [number, number],
  ) {
    const shape = [numBlocks, blockSize, numKvHeads, headDim];
    const numbers = randomNumbers(numBlocks * blockSize * numKvHeads * headDim, 21, 0.5);
    const encoded = encode(requireFloat(kvElementType), numbers) as TensorArrays["float32"];
    for (let layer = 0; layer < numLayers; layer++) {
      for (const part of ["key", "value"]) {
        const tensor = session.allocateTensor(kvElementType, shape) as Tensor<"float32">;
        tensor.copyFrom(encoded);
        this.tensors.set(`${layer}.${part}`, tensor);
      }
    }
  }

  bind(binding: IoBinding): void {
    for (const [name, tensor] of this.tensors) {
      binding.bindInput(`past.${name}`, tensor);
      binding.bindOutput(`present.${name}`, tensor);
    }
  }

  [Symbol.dispose](): void {
    for (const tensor of this.tensors.values()) tensor[Symbol.dispose]();
  }
}

export interface PackedShape {
  /** Tokens of each sequence: 1 where they decode. */
  readonly spanLength: number;
  readonly numSequences: number;
  readonly numColumns: number;
}

/** One shape of step: its inputs are views of one allocation for each element type, so that a step takes two copies. */
export class PackedStep implements Disposable {
  readonly #owned = new DisposableStack();
  readonly #binding: IoBinding;
  readonly #shape: PackedShape;
  readonly #int64: BigInt64Array;
  readonly #int32: Int32Array;
  readonly #wide: Tensor<"int64">;
  readonly #narrow: Tensor<"int32">;
  readonly #logits: Tensor<"float32">;
  readonly #offsets: { readonly rows: number; readonly pasts: number; readonly table: number };

  /** @param metadata Bounds of the longest span and sequence, and what the longest sequence has at least. */
  constructor(
    session: Session,
    graph: DecoderGraph,
    caches: PackedCaches,
    shape: PackedShape,
    metadata: readonly [number, number, number],
  ) {
    const { spanLength, numSequences, numColumns } = shape;
    const numTokens = spanLength * numSequences;
    this.#shape = shape;
    const rows = aligned(numTokens, 8);
    const pasts = aligned(numSequences + 1, 4);
    const table = pasts + aligned(numSequences, 4);
    this.#offsets = { rows, pasts, table };
    this.#int64 = new BigInt64Array(rows + numSequences);
    this.#int32 = new Int32Array(table + numSequences * numColumns);
    this.#wide = this.#owned.use(session.allocateTensor("int64", [this.#int64.length]));
    this.#narrow = this.#owned.use(session.allocateTensor("int32", [this.#int32.length]));
    this.#logits = this.#owned.use(session.allocateTensor("float32", [numSequences, graph.vocabSize]));
    this.#binding = this.#owned.use(session.createBinding());
    const views: Record<string, Tensor> = {
      input_ids: this.#wide.view(0, [numTokens]),
      logit_rows: this.#wide.view(rows, [numSequences]),
      cumulative_lengths: this.#narrow.view(0, [numSequences + 1]),
      past_lengths: this.#narrow.view(pasts, [numSequences]),
      block_table: this.#narrow.view(table, [numSequences, numColumns]),
      // In the host's memory.
      attention_metadata: Tensor.fromTypedArray("int32", Int32Array.from(metadata), [3]),
    };
    // The logits come as they are.
    const ones = session.allocateTensor("float32", [numSequences, 1]);
    ones.copyFrom(new Float32Array(numSequences).fill(1));
    views.inverse_temperature = ones;
    for (const tensor of Object.values(views)) this.#owned.use(tensor);
    for (const name of session.inputNames) if (name in views) this.#binding.bindInput(name, views[name]!);
    caches.bind(this.#binding);
    this.#binding.bindOutput("logits", this.#logits);
    for (let row = 0; row < numSequences; row++) {
      this.#int64[rows + row] = BigInt((row + 1) * spanLength - 1);
      this.#int32[row + 1] = (row + 1) * spanLength;
    }
  }

  /**
   * @param tokenIds [numSequences * spanLength].
   * @param blockTable Row-major [numSequences, numColumns].
   */
  write(tokenIds: readonly number[], pasts: readonly number[], blockTable: readonly number[]): void {
    tokenIds.forEach((id, index) => (this.#int64[index] = BigInt(id)));
    this.#int32.set(pasts, this.#offsets.pasts);
    this.#int32.set(blockTable, this.#offsets.table);
    this.#wide.copyFrom(this.#int64);
    this.#narrow.copyFrom(this.#int32);
  }

  run(options: RunOptions | null = null): void {
    this.#binding.run(options);
  }

  /** [numSequences, vocabSize]. */
  readLogits(): Float32Array {
    return this.#logits.copyToHost();
  }

  get numTokens(): number {
    return this.#shape.numSequences * this.#shape.spanLength;
  }

  [Symbol.dispose](): void {
    this.#owned[Symbol.dispose]();
  }
}

const alignmentBytes = 256;

/** The number of elements up to the next multiple of 256 bytes. */
function aligned(count: number, bytesPerElement: number): number {
  const step = alignmentBytes / bytesPerElement;
  return Math.ceil(count / step) * step;
}
