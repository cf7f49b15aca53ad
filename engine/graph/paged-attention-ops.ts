/** Attention operators of decoders with a paged KV cache: the CUDA provider's own, and the ONNX standard's. */
import { cachedAttentionAttributes, ROTARY_HEAD_MULTIPLE, type RotaryTables } from "./contrib-ops.ts";
import { microsoftDomain, standardDomain, type AttributeValue, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize, nodeError } from "./node-checks.ts";
import { describeValue, type Value } from "./value.ts";

const float = (value: number): AttributeValue => ({ kind: "float", value });
const int = (value: number): AttributeValue => ({ kind: "int", value });

export interface PagedAttentionInputs {
  /** `[N, numHeads * headDim]`, or packed `[N, (numHeads + 2 * numKvHeads) * headDim]` with key and value null. */
  readonly query: Value;
  /** `[N, numKvHeads * headDim]`. */
  readonly key: Value | null;
  readonly value: Value | null;
  /** `[numBlocks, blockSize, numKvHeads, headDim]`. */
  readonly keyCache: Value;
  readonly valueCache: Value;
  /** float32 [1]: the factor of the numbers of an FP8 cache; null for a cache in the type of the query. */
  readonly cacheScale: Value | null;
  /** int32 [B + 1]: the index of each sequence's first token among the N; then N. */
  readonly cumulativeLengths: Value;
  /** int32 [B]: tokens of each sequence in the cache before this run. */
  readonly pastLengths: Value;
  /** int32 [B, C], -1 if no block is mapped. */
  readonly blockTable: Value;
  /** int32 [3] in host memory: upper bounds of the longest query and the longest KV, and the longest KV's lower bound. */
  readonly attentionMetadata: Value;
  /** `[positions, rotaryDim / 2]` each; null if query and key are already rotated. */
  readonly rotary: RotaryTables | null;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Number of tokens that a position sees, including itself; null for all before it. */
  readonly localWindowSize: number | null;
  /** Factor of the products of query and key; null means `1 / sqrt(headDim)`. */
  readonly scale: number | null;
  readonly presentKeyName: string;
  readonly presentValueName: string;
}

/** Whether the operator can rotate this many dimensions of a head: both numbers must be multiples of 16. */
export function rotatesInside(headDim: number, rotaryDim: number): boolean {
  return headDim % ROTARY_HEAD_MULTIPLE === 0 && rotaryDim % ROTARY_HEAD_MULTIPLE === 0 && rotaryDim <= headDim;
}

/** Slots, head sink, and norms of query and key. */
const unusedInputs = [null, null, null, null] as const;

const fp8CacheAttributes: Readonly<Record<string, AttributeValue>> = {
  k_quant_type: { kind: "string", value: "PER_TENSOR" },
  v_quant_type: { kind: "string", value: "PER_TENSOR" },
  k_cache_dtype: { kind: "string", value: "float8e4m3fn" },
  v_cache_dtype: { kind: "string", value: "float8e4m3fn" },
};

/**
 * Causal attention of a packed batch with rotary embedding and paged KV cache in one node, on CUDA only. It writes into
 * its input caches, so the outputs must be bound to the same memory.
 */
export function pagedAttention(
  graph: GraphBuilder,
  name: string,
  inputs: PagedAttentionInputs,
): { output: Value; presentKey: Value; presentValue: Value } {
  const { query, key, value, keyCache, valueCache, rotary, numHeads, numKvHeads, headDim } = inputs;
  const { cumulativeLengths, pastLengths, blockTable, attentionMetadata, cacheScale } = inputs;
  const node = { name, operator: "PagedAttention" };
  const { elementType } = query;
  checkElementType(node, query, "float16", "bfloat16");
  checkRank(node, query, 2);
  const tokens = query.shape[0]!;
  if (numHeads % numKvHeads !== 0) throw nodeError(node, `${numHeads} heads do not divide into ${numKvHeads} groups.`);
  if ((key === null) !== (value === null)) throw nodeError(node, "key and value are both given or both packed.");
  if (key === null || value === null) {
    checkShape(node, query, [tokens, (numHeads + 2 * numKvHeads) * headDim]);
  } else {
    checkShape(node, query, [tokens, numHeads * headDim]);
    for (const part of [key, value]) {
      checkElementType(node, part, elementType);
      checkShape(node, part, [tokens, numKvHeads * headDim]);
    }
  }
  for (const cache of [keyCache, valueCache]) {
    checkElementType(node, cache, cacheScale === null ? elementType : "float8e4m3");
    checkShape(node, cache, [keyCache.shape[0]!, keyCache.shape[1]!, numKvHeads, headDim]);
  }
  for (const index of [cumulativeLengths, pastLengths, blockTable, attentionMetadata]) {
    checkElementType(node, index, "int32");
  }
  checkShape(node, blockTable, [pastLengths.shape[0]!, blockTable.shape[1]!]);
  checkShape(node, attentionMetadata, [3]);
  if (cacheScale !== null) {
    checkElementType(node, cacheScale, "float32");
    checkShape(node, cacheScale, [1]);
  }
  if (rotary !== null) {
    const rotaryDim = 2 * knownSize(node, rotary.cosCache, 1);
    if (!rotatesInside(headDim, rotaryDim)) {
      throw nodeError(node, `it does not rotate ${rotaryDim} dimensions of heads of ${headDim}.`);
    }
    checkElementType(node, rotary.cosCache, elementType);
    checkElementType(node, rotary.sinCache, elementType);
    checkShape(node, rotary.sinCache, rotary.cosCache.shape);
  }
  const [output, presentKey, presentValue] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [
      query,
      key,
      value,
      keyCache,
      valueCache,
      cumulativeLengths,
      pastLengths,
      blockTable,
      rotary?.cosCache ?? null,
      rotary?.sinCache ?? null,
      ...unusedInputs,
      cacheScale,
      cacheScale,
      attentionMetadata,
    ],
    attributes: { ...cachedAttentionAttributes(inputs), ...(cacheScale !== null && fp8CacheAttributes) },
    outputs: [
      { name, elementType, shape: [tokens, numHeads * headDim] },
      { name: inputs.presentKeyName, elementType: keyCache.elementType, shape: keyCache.shape },
      { name: inputs.presentValueName, elementType: valueCache.elementType, shape: valueCache.shape },
    ],
  });
  return { output, presentKey, presentValue };
}

export interface MaskedAttentionInputs {
  /** `[1, N, numHeads * headDim]`. */
  readonly query: Value;
  /** `[1, M, numKvHeads * headDim]`. */
  readonly key: Value;
  readonly value: Value;
  /** bool [N, M]: which keys each query sees, at least one. */
  readonly mask: Value;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly scale: number | null;
}

/** The standard's attention: `[1, N, numHeads * headDim]`. */
export function maskedAttention(
  graph: GraphBuilder,
  name: string,
  { query, key, value, mask, numHeads, numKvHeads, headDim, scale }: MaskedAttentionInputs,
): Value {
  const node = { name, operator: "Attention" };
  const { elementType } = query;
  checkElementType(node, query, ...floats);
  checkShape(node, query, [1, query.shape[1]!, numHeads * headDim]);
  for (const part of [key, value]) {
    checkElementType(node, part, elementType);
    checkShape(node, part, [1, key.shape[1]!, numKvHeads * headDim]);
  }
  checkElementType(node, mask, "bool");
  checkShape(node, mask, [query.shape[1]!, key.shape[1]!]);
  return graph.addNode({
    ...node,
    domain: standardDomain,
    opset: ATTENTION_OPSET,
    inputs: [query, key, value, mask],
    attributes: {
      q_num_heads: int(numHeads),
      kv_num_heads: int(numKvHeads),
      ...(scale === null ? {} : { scale: float(scale) }),
    },
    outputs: [{ name, elementType, shape: query.shape }],
  })[0];
}

/** The standard has had attention and rotary embedding since this version. */
const ATTENTION_OPSET = 23;

/**
 * Rotates `[1, N, heads * headDim]` by tables that have a row for each of the N tokens, `[1, N, rotaryDim / 2]`: the
 * standard's rotary embedding, which does not require positions. Heads longer than `rotaryDim` keep the rest as it is.
 */
export function rotateByRows(
  graph: GraphBuilder,
  name: string,
  { input, cosCache, sinCache, numHeads }: RotaryTables & { readonly input: Value; readonly numHeads: number },
): Value {
  const node = { name, operator: "RotaryEmbedding" };
  checkElementType(node, input, ...floats);
  const headDim = knownSize(node, input, 2) / numHeads;
  for (const table of [cosCache, sinCache]) {
    checkElementType(node, table, input.elementType);
    checkShape(node, table, [1, input.shape[1]!, cosCache.shape[2]!]);
  }
  const rotaryDim = 2 * knownSize(node, cosCache, 2);
  if (rotaryDim > headDim) throw nodeError(node, `${describeValue(cosCache)} is for heads longer than ${headDim}.`);
  const partial = rotaryDim < headDim ? { rotary_embedding_dim: int(rotaryDim) } : {};
  return graph.addNode({
    ...node,
    domain: standardDomain,
    opset: ATTENTION_OPSET,
    inputs: [input, cosCache, sinCache],
    attributes: { num_heads: int(numHeads), interleaved: int(0), ...partial },
    outputs: [{ name, elementType: input.elementType, shape: input.shape }],
  })[0];
}
