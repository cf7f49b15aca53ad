/**
 * One layer of paged attention as the decoder graphs have it, run on random batches: on CUDA the operator, on the CPU the
 * reference of the same inputs. Beside it the same sums in plain loops.
 */
import type { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { createDecoderInputs } from "../../engine/models/decoder-graph/create-decoder-inputs.ts";
import { tokens } from "../../engine/models/decoder-graph/sizes.ts";
import { createGraphContext } from "../../engine/models/graph-context.ts";
import type { WeightSource } from "../../engine/models/weight-source.ts";
import type { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import type { ExperimentDevice } from "./experiment.ts";
import {
  createRandom,
  decode,
  decodeFloat8,
  emptyArray,
  encode,
  encodeFloat8,
  randomBelow,
  randomNumbers,
  rounded,
  roundedToFloat8,
} from "./numbers.ts";
import type { FloatType } from "./numbers.ts";

export interface AttentionShape {
  readonly elementType: FloatType;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly localWindowSize: number | null;
  /** Whether the cache has 8-bit floats. Default false. */
  readonly storesFp8?: boolean;
}

export interface AttentionSequence {
  readonly past: number;
  readonly length: number;
}

/** A run's inputs: what each sequence has in the pool before, and what it adds. */
export interface AttentionBatch {
  readonly sequences: readonly AttentionSequence[];
  readonly numTokens: number;
  readonly numBlocks: number;
  /** Row-major [B, numColumns]; -1 is no block. */
  readonly blockTable: Int32Array;
  readonly numColumns: number;
  /** [numTokens, heads * headDim] each. */
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  /** [numBlocks, blockSize, numKvHeads, headDim] each. */
  readonly keyCache: Float32Array;
  readonly valueCache: Float32Array;
}

const maxPositions = 8192;

const noWeights: WeightSource = {
  prepared: (request) => {
    throw new Error(`attention has no weight ${request.name}`);
  },
  stored: () => null,
  has: () => false,
  quantised: () => null,
  fewestStoredBits: () => 4,
};

/** The graph of one layer: `query`, `key`, `value` and what `DecoderGraph` lists in, `attended` and the caches out. */
export function buildAttention(device: ExperimentDevice, shape: AttentionShape): GraphBuilder {
  const { elementType, numHeads, numKvHeads, headDim, blockSize, localWindowSize, storesFp8 = false } = shape;
  const plain = { kind: "plain", elementType } as const;
  const context = createGraphContext("attention", {
    weights: noWeights,
    precision: { activations: elementType, linear: plain, head: plain, vision: plain },
    device,
    kvLayout: { kind: "paged", blockSize },
    kvPrecision: { kind: storesFp8 ? "fp8" : "activations" },
  });
  const { graph } = context;
  const { attend } = createDecoderInputs(context);
  const flat = (name: string, heads: number) => graph.input(name, elementType, [tokens, heads * headDim]);
  const table = (name: string) => graph.input(name, elementType, [maxPositions, headDim / 2]);
  const attended = attend({
    name: "attended",
    layer: 0,
    projected: {
      kind: "separate",
      values: [flat("query", numHeads), flat("key", numKvHeads), flat("value", numKvHeads)],
    },
    rotary: { tables: { cosCache: table("cos_cache"), sinCache: table("sin_cache") }, rowOf: "position" },
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize,
    scale: null,
  });
  graph.output(attended);
  return graph;
}

/**
 * Random keys, values and tables. Blocks are shuffled; where two neighbours have a full block in the past, the second
 * shares the first's.
 */
export function randomBatch(
  shape: AttentionShape,
  sequences: readonly AttentionSequence[],
  seed: number,
): AttentionBatch {
  const { elementType, numHeads, numKvHeads, headDim, blockSize } = shape;
  const random = createRandom(seed);
  const numBlocksOf = ({ past, length }: AttentionSequence): number => Math.ceil((past + length) / blockSize);
  const numColumns = Math.max(1, ...sequences.map(numBlocksOf));
  const numBlocks = sequences.reduce((sum, sequence) => sum + numBlocksOf(sequence), 0) + 1;
  // Block 0 belongs to no sequence.
  const free = Array.from({ length: numBlocks - 1 }, (_, index) => index + 1);
  const blockTable = new Int32Array(sequences.length * numColumns).fill(-1);
  sequences.forEach((sequence, row) => {
    for (let column = 0; column < numBlocksOf(sequence); column++) {
      const [block] = free.splice(randomBelow(random, free.length), 1);
      blockTable[row * numColumns + column] = block!;
    }
    const canShare = row > 0 && sequence.past >= blockSize && sequences[row - 1]!.past >= blockSize;
    if (canShare) blockTable[row * numColumns] = blockTable[(row - 1) * numColumns]!;
  });
  const numTokens = sequences.reduce((sum, { length }) => sum + length, 0);
  const poolSize = numBlocks * blockSize * numKvHeads * headDim;
  const numbers = (count: number, offset: number): Float32Array =>
    rounded(elementType, randomNumbers(count, seed + offset));
  return {
    sequences,
    numTokens,
    numBlocks,
    numColumns,
    blockTable,
    query: numbers(numTokens * numHeads * headDim, 1),
    key: numbers(numTokens * numKvHeads * headDim, 2),
    value: numbers(numTokens * numKvHeads * headDim, 3),
    keyCache: stored(shape, numbers(poolSize, 4)),
    valueCache: stored(shape, numbers(poolSize, 5)),
  };
}

/** What the cache keeps of the values. */
function stored({ storesFp8 = false }: AttentionShape, values: Float32Array): Float32Array {
  return storesFp8 ? roundedToFloat8(values) : values;
}

/** The batch with a pool in which every place that no sequence has written holds no number, as fresh memory may. */
export function withUnwrittenMemory(shape: AttentionShape, batch: AttentionBatch): AttentionBatch {
  const { numKvHeads, headDim, blockSize } = shape;
  const width = numKvHeads * headDim;
  const poison = (cache: Float32Array): Float32Array => {
    const poisoned = new Float32Array(cache.length).fill(Number.NaN);
    batch.sequences.forEach(({ past }, row) => {
      for (let position = 0; position < past; position++) {
        const block = batch.blockTable[row * batch.numColumns + Math.floor(position / blockSize)]!;
        const start = (block * blockSize + (position % blockSize)) * width;
        poisoned.set(cache.subarray(start, start + width), start);
      }
    });
    return poisoned;
  };
  return { ...batch, keyCache: poison(batch.keyCache), valueCache: poison(batch.valueCache) };
}

export interface AttentionResult {
  /** [numTokens, numHeads * headDim] */
  readonly attended: Float32Array;
  /** As in `AttentionBatch`, after the run. */
  readonly keyCache: Float32Array;
  readonly valueCache: Float32Array;
}

export interface AttentionRunOptions {
  /** How often the same batch is run; each writes the same keys and values. */
  readonly numRepeats?: number;
  /** Whether the caches are bound as outputs as well; false for a graph that lacks these. */
  readonly bindsPresent?: boolean;
}

/** The results of each repeat; the caches are those after the last one. */
export function runAttention(
  session: Session,
  shape: AttentionShape,
  batch: AttentionBatch,
  { numRepeats = 1, bindsPresent = true }: AttentionRunOptions = {},
): AttentionResult & { readonly repeats: readonly Float32Array[] } {
  const { elementType, numHeads, numKvHeads, headDim, blockSize, storesFp8 = false } = shape;
  const { sequences, numTokens, numBlocks, numColumns } = batch;
  const isFloat8 = storesFp8 && session.device === "cuda";
  using owned = new DisposableStack();
  using binding = session.createBinding();
  const int32 = (values: readonly number[]): Tensor =>
    owned.use(Tensor.fromTypedArray("int32", Int32Array.from(values), [values.length]));
  const float = (values: Float32Array, dimensions: readonly number[]): Tensor =>
    owned.use(Tensor.fromTypedArray(elementType, encode(elementType, values), dimensions));
  const onDevice = (values: Float32Array, dimensions: readonly number[]): Tensor => {
    if (isFloat8) {
      const cache = owned.use(session.allocateTensor("float8e4m3", dimensions));
      cache.copyFrom(encodeFloat8(values));
      return cache;
    }
    const tensor = owned.use(session.allocateTensor(elementType, dimensions));
    tensor.copyFrom(encode(elementType, values));
    return tensor;
  };
  const starts = [0];
  for (const { length } of sequences) starts.push(starts.at(-1)! + length);
  const lengths = sequences.map(({ past, length }) => past + length);
  const maxLength = Math.max(...lengths);
  const poolShape = [numBlocks, blockSize, numKvHeads, headDim];
  const caches = { key: onDevice(batch.keyCache, poolShape), value: onDevice(batch.valueCache, poolShape) };
  const { cosines, sines } = rotaryTables(headDim);
  const inputs: Record<string, Tensor> = {
    input_ids: owned.use(Tensor.fromTypedArray("int64", new BigInt64Array(numTokens), [numTokens])),
    logit_rows: owned.use(Tensor.fromTypedArray("int64", new BigInt64Array(1), [1])),
    cumulative_lengths: int32(starts),
    past_lengths: int32(sequences.map(({ past }) => past)),
    block_table: owned.use(Tensor.fromTypedArray("int32", batch.blockTable, [sequences.length, numColumns])),
    attention_metadata: int32([Math.max(...sequences.map(({ length }) => length)), maxLength, maxLength]),
    query: float(batch.query, [numTokens, numHeads * headDim]),
    key: float(batch.key, [numTokens, numKvHeads * headDim]),
    value: float(batch.value, [numTokens, numKvHeads * headDim]),
    cos_cache: float(cosines, [maxPositions, headDim / 2]),
    sin_cache: float(sines, [maxPositions, headDim / 2]),
    "past.0.key": caches.key,
    "past.0.value": caches.value,
  };
  // ONNX Runtime drops inputs that no node reads.
  for (const name of session.inputNames) binding.bindInput(name, inputs[name]!);
  if (bindsPresent) for (const part of ["key", "value"] as const) binding.bindOutput(`present.0.${part}`, caches[part]);
  const output = emptyArray(elementType, numTokens * numHeads * headDim);
  const outputName = session.outputNames.find((name) => !name.startsWith("present"))!;
  binding.bindOutput(
    outputName,
    owned.use(Tensor.fromTypedArray(elementType, output, [numTokens, numHeads * headDim])),
  );
  const repeats = Array.from({ length: numRepeats }, () => {
    binding.run();
    return decode(elementType, output);
  });
  const read = (tensor: Tensor): Float32Array =>
    isFloat8
      ? decodeFloat8(tensor.copyToHost() as Uint8Array)
      : decode(elementType, tensor.copyToHost() as Parameters<typeof decode>[1]);
  return { attended: repeats[0]!, keyCache: read(caches.key), valueCache: read(caches.value), repeats };
}

function rotaryTables(headDim: number): { readonly cosines: Float32Array; readonly sines: Float32Array } {
  const half = headDim / 2;
  const angle = (index: number): number => Math.floor(index / half) * 10_000 ** (-(index % half) / half);
  const length = maxPositions * half;
  return {
    cosines: Float32Array.from({ length }, (_, index) => Math.cos(angle(index))),
    sines: Float32Array.from({ length }, (_, index) => Math.sin(angle(index))),
  };
}

/** The same sums in 64-bit numbers, one after the other. */
export function attendInLoops(shape: AttentionShape, batch: AttentionBatch): AttentionResult {
  const { elementType, numHeads, numKvHeads, headDim, blockSize, localWindowSize } = shape;
  const { sequences, numColumns, blockTable } = batch;
  const { cosines, sines } = rotaryTables(headDim);
  const [cosine, sine] = [rounded(elementType, cosines), rounded(elementType, sines)];
  const half = headDim / 2;
  const rotate = (source: Float32Array, offset: number, position: number): Float32Array => {
    const rotated = new Float32Array(headDim);
    for (let index = 0; index < half; index++) {
      const [left, right] = [source[offset + index], source[offset + half + index]];
      const [c, s] = [cosine[position * half + index], sine[position * half + index]];
      rotated[index] = left! * c! - right! * s!;
      rotated[half + index] = right! * c! + left! * s!;
    }
    return rounded(elementType, rotated);
  };
  const keyCache = batch.keyCache.slice();
  const valueCache = batch.valueCache.slice();
  const attended = new Float32Array(batch.numTokens * numHeads * headDim);
  const slotOf = (row: number, position: number): number =>
    (blockTable[row * numColumns + Math.floor(position / blockSize)]! * blockSize + (position % blockSize)) *
    numKvHeads *
    headDim;
  let first = 0;
  sequences.forEach(({ past, length }, row) => {
    for (let index = 0; index < length; index++) {
      for (let head = 0; head < numKvHeads; head++) {
        const source = ((first + index) * numKvHeads + head) * headDim;
        const target = slotOf(row, past + index) + head * headDim;
        keyCache.set(stored(shape, rotate(batch.key, source, past + index)), target);
        valueCache.set(stored(shape, batch.value.subarray(source, source + headDim)), target);
      }
    }
    for (let index = 0; index < length; index++) {
      const position = past + index;
      const firstSeen = localWindowSize === null ? 0 : Math.max(0, position - localWindowSize + 1);
      for (let head = 0; head < numHeads; head++) {
        const kvHead = Math.floor(head / (numHeads / numKvHeads));
        const at = ((first + index) * numHeads + head) * headDim;
        const query = rotate(batch.query, at, position);
        const scores: number[] = [];
        for (let seen = firstSeen; seen <= position; seen++) {
          const slot = slotOf(row, seen) + kvHead * headDim;
          let score = 0;
          for (let index = 0; index < headDim; index++) score += query[index]! * keyCache[slot + index]!;
          scores.push(score / Math.sqrt(headDim));
        }
        const largest = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - largest));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        weights.forEach((weight, seen) => {
          const slot = slotOf(row, firstSeen + seen) + kvHead * headDim;
          for (let index = 0; index < headDim; index++) {
            attended[at + index]! += (weight / total) * valueCache[slot + index]!;
          }
        });
      }
    }
    first += length;
  });
  return { attended, keyCache, valueCache };
}
