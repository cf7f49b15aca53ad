/**
 * Attention of decode steps by the kernels that the CUDA provider has for it: over blocks and over slots, with caches of 16
 * and of 8 bits. The engine takes one of them; these graphs show what the others would give.
 */
import { GraphBuilder, microsoftDomain, type AttributeValue } from "../../engine/graph/graph-builder.ts";
import type { Value } from "../../engine/graph/value.ts";
import type { TensorElementType } from "../../engine/runtime/element-type.ts";
import { RunOptions } from "../../engine/runtime/run-options.ts";
import type { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { decode, encode, encodeFloat8, randomNumbers } from "./numbers.ts";

/** Of Llama 3 8B. */
const numHeads = 32;
const numKvHeads = 8;
const headDim = 128;

/** Of queries and of what attention gives. */
const elementType = "bfloat16";

export type CacheType = typeof elementType | "int8" | "float8e4m3";

export interface AttentionVariant {
  readonly name: string;
  readonly cacheType: CacheType;
  /** Null for slots. */
  readonly blockSize: number | null;
  /** Whether the lower bound of the longest sequence is true; 1 otherwise, which forbids to divide sequences. */
  readonly tellsLength: boolean;
  /**
   * Whether the query heads that share keys and values are tokens of one sequence that all see the same, with one head for
   * each of these keys and values, in place of heads that read them once each. Only the first such token has a key and a
   * value to store. Default false.
   */
  readonly groupsAsTokens?: boolean;
}

const groupSize = numHeads / numKvHeads;

/** Of codes of 8 bits. With 1, an 8-bit float is the number itself. */
const scaleOf: Readonly<Partial<Record<CacheType, number>>> = { int8: 1 / 64, float8e4m3: 1 };

/** How `k_cache_dtype` calls them. */
const dtypeNames: Readonly<Partial<Record<CacheType, string>>> = { int8: "int8", float8e4m3: "float8e4m3fn" };

const string = (value: string): AttributeValue => ({ kind: "string", value });
const int = (value: number): AttributeValue => ({ kind: "int", value });

/** `numNodes` attentions, each of which has the last one's output as its query, and caches of its own. */
export function buildVariant(variant: AttentionVariant, numNodes: number): GraphBuilder {
  const graph = new GraphBuilder("attention_variant");
  const { cacheType, blockSize, groupsAsTokens = false } = variant;
  const isPaged = blockSize !== null;
  const numQueryHeads = groupsAsTokens ? numKvHeads : numHeads;
  const flat = (name: string, heads: number): Value =>
    graph.input(name, elementType, isPaged ? ["T", heads * headDim] : ["T", 1, heads * headDim]);
  let query = flat("query", numQueryHeads);
  const [key, value] = [flat("key", numKvHeads), flat("value", numKvHeads)];
  const scale = scaleOf[cacheType];
  const scales = scale === undefined ? [null, null] : Array(2).fill(graph.constant("scale", "float32", [1], [scale]));
  const cacheShape = isPaged ? ["N", blockSize, numKvHeads, headDim] : ["T", numKvHeads, "L", headDim];
  const lengths = isPaged
    ? [
        graph.input("starts", "int32", ["S + 1"]),
        graph.input("pasts", "int32", ["S"]),
        graph.input("block_table", "int32", ["S", "C"]),
      ]
    : [graph.input("pasts", "int32", ["T"]), graph.input("longest", "int32", [])];
  const metadata = isPaged ? graph.input("metadata", "int32", [3]) : null;
  const storedAt = groupsAsTokens ? graph.input("stored_at", "int32", ["T"]) : null;
  for (let node = 0; node < numNodes; node++) {
    const caches = ["key", "value"].map((part) => graph.input(`past.${node}.${part}`, cacheType, cacheShape));
    const [output, ...presents] = graph.addNode({
      name: `attention.${node}`,
      operator: isPaged ? "PagedAttention" : "GroupQueryAttention",
      domain: microsoftDomain,
      inputs: isPaged
        ? [query, key, value, ...caches, ...lengths, null, null, storedAt, null, null, null, ...scales, metadata]
        : [
            query,
            key,
            value,
            ...caches,
            ...lengths,
            ...(scale === undefined ? [] : [...Array<null>(5).fill(null), ...scales]),
          ],
      attributes: {
        num_heads: int(numQueryHeads),
        kv_num_heads: int(numKvHeads),
        do_rotary: int(0),
        ...(groupsAsTokens && { is_causal: int(0) }),
        ...(scale !== undefined && { k_quant_type: string("PER_TENSOR"), v_quant_type: string("PER_TENSOR") }),
        ...(scale !== undefined &&
          (isPaged
            ? { k_cache_dtype: string(dtypeNames[cacheType]!), v_cache_dtype: string(dtypeNames[cacheType]!) }
            : { kv_cache_bit_width: int(8) })),
      },
      outputs: [
        { name: `attention.${node}`, elementType, shape: query.shape },
        ...["key", "value"].map((part) => ({
          name: `present.${node}.${part}`,
          elementType: cacheType,
          shape: cacheShape,
        })),
      ],
    });
    query = output!;
    for (const present of presents) graph.output(present);
  }
  graph.output(query);
  return graph;
}

export interface BoundVariant extends Disposable {
  run(): void;
  /** [numSequences, numHeads * headDim] of the last run. */
  readOutput(): Float32Array;
  /** Of keys and values that a node reads. */
  readonly cacheBytes: number;
}

/** Decodes `numSequences` sequences with `past` tokens each, in a graph that is captured where the layout allows it. */
export function bindVariant(
  session: Session,
  variant: AttentionVariant,
  numNodes: number,
  { numSequences, past }: { readonly numSequences: number; readonly past: number },
): BoundVariant {
  const { cacheType, blockSize, tellsLength, groupsAsTokens = false } = variant;
  const tokensOfOne = groupsAsTokens ? groupSize : 1;
  const numQueryHeads = numHeads / tokensOfOne;
  using owned = new DisposableStack();
  const binding = owned.use(session.createBinding());
  const allocate = <E extends TensorElementType>(type: E, shape: readonly number[]): Tensor<E> =>
    owned.use(session.allocateTensor(type, shape));
  const bind = (name: string, tensor: Tensor): void => binding.bindInput(name, tensor);
  const int32 = (name: string, values: Int32Array, shape: readonly number[]): void => {
    const tensor = allocate("int32", shape);
    tensor.copyFrom(values);
    bind(name, tensor);
  };
  const numTokens = numSequences * tokensOfOne;
  const rows = blockSize === null ? [numTokens, 1] : [numTokens];
  const numbers = (name: string, heads: number, values: Float32Array): void => {
    const tensor = allocate(elementType, [...rows, heads * headDim]);
    tensor.copyFrom(encode(elementType, values));
    bind(name, tensor);
  };
  const query = randomNumbers(numSequences * numHeads * headDim, 1);
  numbers("query", numQueryHeads, groupsAsTokens ? exchangeAxes(query, numKvHeads, groupSize) : query);
  const width = numKvHeads * headDim;
  for (const [name, seed] of [
    ["key", 2],
    ["value", 3],
  ] as const) {
    // A sequence's first token has them; those of others are not stored.
    const ofFirst = randomNumbers(numSequences * width, seed);
    const values = new Float32Array(numTokens * width);
    for (let row = 0; row < numSequences; row++) {
      values.set(ofFirst.subarray(row * width, (row + 1) * width), row * tokensOfOne * width);
    }
    numbers(name, numKvHeads, values);
  }
  int32("pasts", new Int32Array(numSequences).fill(past + 1 - tokensOfOne), [numSequences]);
  let cacheShape: readonly number[];
  if (blockSize === null) {
    bind("longest", owned.use(Tensor.fromTypedArray("int32", Int32Array.of(past + 1), [])));
    cacheShape = [numSequences, numKvHeads, past + 64, headDim];
  } else {
    const blocksOfOne = Math.ceil((past + 1) / blockSize);
    const numColumns = Math.max(8, 2 ** Math.ceil(Math.log2(blocksOfOne)));
    const table = Int32Array.from({ length: numSequences * numColumns }, (_, index) => {
      const column = index % numColumns;
      return column < blocksOfOne ? 1 + Math.floor(index / numColumns) * blocksOfOne + column : -1;
    });
    int32(
      "starts",
      Int32Array.from({ length: numSequences + 1 }, (_, index) => index * tokensOfOne),
      [numSequences + 1],
    );
    int32("block_table", table, [numSequences, numColumns]);
    if (groupsAsTokens) {
      const storedAt = new Int32Array(numTokens).fill(-1);
      for (let row = 0; row < numSequences; row++) {
        const block = table[row * numColumns + Math.floor(past / blockSize)]!;
        storedAt[row * tokensOfOne] = block * blockSize + (past % blockSize);
      }
      int32("stored_at", storedAt, [numTokens]);
    }
    const bounds = Int32Array.of(tokensOfOne, numColumns * blockSize, tellsLength ? past + 1 : 1);
    bind("metadata", owned.use(Tensor.fromTypedArray("int32", bounds, [3])));
    cacheShape = [1 + numSequences * blocksOfOne, blockSize, numKvHeads, headDim];
  }
  for (let node = 0; node < numNodes; node++) {
    for (const part of ["key", "value"]) {
      const cache = allocate(cacheType, cacheShape);
      fillCache(cache, cacheType);
      bind(`past.${node}.${part}`, cache);
      binding.bindOutput(`present.${node}.${part}`, cache);
    }
  }
  const output = allocate(elementType, [...rows, numQueryHeads * headDim]);
  binding.bindOutput(`attention.${numNodes - 1}`, output);
  const options = blockSize === null ? null : owned.use(new RunOptions({ gpu_graph_id: "1" }));
  const moved = owned.move();
  return {
    cacheBytes: 2 * numSequences * past * numKvHeads * headDim * (scaleOf[cacheType] === undefined ? 2 : 1),
    run: () => binding.run(options),
    readOutput: () => {
      const values = decode(elementType, output.copyToHost());
      return groupsAsTokens ? exchangeAxes(values, groupSize, numKvHeads) : values;
    },
    [Symbol.dispose]: () => moved.dispose(),
  };
}

/** [n, columns, rows, headDim] of [n, rows, columns, headDim]. */
function exchangeAxes(values: Float32Array, rows: number, columns: number): Float32Array {
  const exchanged = new Float32Array(values.length);
  for (let from = 0; from < values.length; from += headDim) {
    const place = from / headDim;
    const [outer, row, column] = [
      Math.floor(place / (rows * columns)),
      Math.floor(place / columns) % rows,
      place % columns,
    ];
    exchanged.set(values.subarray(from, from + headDim), ((outer * columns + column) * rows + row) * headDim);
  }
  return exchanged;
}

/** Row-major numbers that a cache repeats from its start on: multiples of 1/8 within 1, which every type has exactly. */
const numPatternRows = 1021;
const pattern = Float32Array.from(randomNumbers(numPatternRows * headDim, 4), (value) => Math.round(value * 8) / 8);

/** The pattern in the cache's type. */
function patternIn(cacheType: CacheType): Int8Array | Uint8Array | Uint16Array | Float16Array {
  if (cacheType === "int8") return Int8Array.from(pattern, (value) => Math.round(value / scaleOf.int8!));
  if (cacheType === "float8e4m3") return encodeFloat8(pattern);
  return encode(cacheType, pattern);
}

function fillCache(cache: Tensor, cacheType: CacheType): void {
  const values = patternIn(cacheType);
  const count = cache.shape.reduce((product, size) => product * size, 1);
  for (let start = 0; start < count; start += values.length) {
    const length = Math.min(values.length, count - start);
    using view = cache.view(start, [length]);
    view.copyFrom(values.subarray(0, length));
  }
}
