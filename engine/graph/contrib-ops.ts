/**
 * ONNX Runtime's own operators (`docs/ContribOperators.md` of its repository), as far as the models use them.
 * The normalisations and the activation fuse what would be three to five standard nodes.
 */
import { microsoftDomain, standardDomain, type AttributeValue, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize, nodeError } from "./node-checks.ts";
import { describeValue, sameShape, type Dimension, type Shape, type Value } from "./value.ts";

const float = (value: number): AttributeValue => ({ kind: "float", value });
const int = (value: number): AttributeValue => ({ kind: "int", value });

/** RMS norm over the last axis: `input / sqrt(mean(input^2) + epsilon) * weight`. */
export function simplifiedLayerNormalization(
  graph: GraphBuilder,
  name: string,
  { input, weight, epsilon }: { readonly input: Value; readonly weight: Value; readonly epsilon: number },
): Value {
  const node = { name, operator: "SimplifiedLayerNormalization" };
  checkElementType(node, weight, input.elementType);
  checkShape(node, weight, [input.shape.at(-1)!]);
  return graph.addNode({
    ...node,
    // Registered under the standard domain although the standard does not have it.
    domain: standardDomain,
    inputs: [input, weight],
    attributes: { epsilon: float(epsilon), axis: int(-1), stash_type: int(1) },
    outputs: [{ name, elementType: input.elementType, shape: input.shape }],
  })[0];
}

/** RMS norm of `input + skip`; `sum` is `input + skip` itself, the residual stream. */
export function skipSimplifiedLayerNormalization(
  graph: GraphBuilder,
  name: string,
  inputs: { readonly input: Value; readonly skip: Value; readonly weight: Value; readonly epsilon: number },
): { normalised: Value; sum: Value } {
  const { input, skip, weight, epsilon } = inputs;
  const node = { name, operator: "SkipSimplifiedLayerNormalization" };
  const { elementType, shape } = input;
  checkElementType(node, input, ...floats);
  checkElementType(node, skip, elementType);
  checkElementType(node, weight, elementType);
  checkShape(node, skip, shape);
  checkShape(node, weight, [shape.at(-1)!]);
  const [normalised, , , sum] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [input, skip, weight],
    attributes: { epsilon: float(epsilon) },
    outputs: [
      { name, elementType, shape },
      // Mean and inverse deviation, which exist for training only.
      { name: "", elementType: "float32", shape: [] },
      { name: "", elementType: "float32", shape: [] },
      { name: `${name}.sum`, elementType, shape },
    ],
  });
  return { normalised: normalised, sum: sum };
}

/** `input * sigmoid(alpha * input)`: SiLU with alpha 1, CLIP's quick_gelu with 1.702. */
export function quickGelu(graph: GraphBuilder, name: string, input: Value, alpha: number): Value {
  return graph.addNode({
    name,
    operator: "QuickGelu",
    domain: microsoftDomain,
    inputs: [input],
    attributes: { alpha: float(alpha) },
    outputs: [{ name, elementType: input.elementType, shape: input.shape }],
  })[0];
}

export interface AttentionInputs {
  /** [batch, tokens, heads * headDim]. */
  readonly query: Value;
  /** Like `query`, as is the value; both may have another number of tokens, and the value other heads. */
  readonly key: Value;
  readonly value: Value;
  readonly numHeads: number;
  /** Factor of the products of query and key. Default: `1 / sqrt(headDim)`. */
  readonly scale?: number;
  /** [batch, 1, tokens, tokens]: added to the scores of every head. */
  readonly bias?: Value;
}

/** Attention without cache or causality: [batch, tokens of the query, heads * headDim of the value]. */
export function multiHeadAttention(graph: GraphBuilder, name: string, inputs: AttentionInputs): Value {
  const { query, key, value, numHeads, scale, bias } = inputs;
  const node = { name, operator: "MultiHeadAttention" };
  checkElementType(node, query, ...floats);
  checkRank(node, query, 3);
  for (const other of [key, value]) checkElementType(node, other, query.elementType);
  checkShape(node, key, query.shape.with(1, key.shape[1]!));
  checkShape(node, value, key.shape.with(2, value.shape[2]!));
  if (bias !== undefined) {
    checkElementType(node, bias, query.elementType);
    checkRank(node, bias, 4);
  }
  for (const divided of [query, value]) {
    if (knownSize(node, divided, 2) % numHeads === 0) continue;
    throw nodeError(node, `${describeValue(divided)} does not divide into ${numHeads} heads.`);
  }
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [query, key, value, ...(bias === undefined ? [] : [null, null, bias])],
    attributes: { num_heads: int(numHeads), ...(scale !== undefined && { scale: float(scale) }) },
    outputs: [{ name, elementType: query.elementType, shape: query.shape.with(2, value.shape[2]!) }],
  })[0];
}

/** `[positions, headDim / 2]` each, for the half-split (not interleaved) rotary embedding. */
export interface RotaryTables {
  readonly cosCache: Value;
  readonly sinCache: Value;
}

/**
 * Rotates `[B, S, heads * headDim]` by the angles of `positions` int64 [B, S].
 *
 * @param inputs.numHeads Given where heads are longer than the tables say: the rest of each stays as it is.
 */
export function rotaryEmbedding(
  graph: GraphBuilder,
  name: string,
  inputs: RotaryTables & { readonly input: Value; readonly positions: Value; readonly numHeads?: number },
): Value {
  const { input, positions, cosCache, sinCache, numHeads } = inputs;
  const node = { name, operator: "RotaryEmbedding" };
  checkElementType(node, input, ...floats);
  checkElementType(node, positions, "int64");
  checkRank(node, input, 3);
  checkShape(node, positions, input.shape.slice(0, 2));
  checkElementType(node, cosCache, input.elementType);
  checkShape(node, sinCache, cosCache.shape);
  const rotaryDim = 2 * knownSize(node, cosCache, 1);
  const features = knownSize(node, input, 2);
  const headDim = numHeads === undefined ? rotaryDim : features / numHeads;
  if (features % headDim !== 0 || rotaryDim > headDim) {
    throw nodeError(node, `${describeValue(input)} does not divide into heads of ${describeValue(cosCache)}.`);
  }
  const partial: Readonly<Record<string, AttributeValue>> =
    rotaryDim < headDim ? { num_heads: int(features / headDim), rotary_embedding_dim: int(rotaryDim) } : {};
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [input, positions, cosCache, sinCache],
    attributes: { interleaved: int(0), ...partial },
    outputs: [{ name, elementType: input.elementType, shape: input.shape }],
  })[0];
}

/** The operator's own rotary embedding requires head sizes that are a multiple of this. */
export const ROTARY_HEAD_MULTIPLE = 16;

export interface GroupQueryAttentionInputs {
  /** `[B, S, numHeads * headDim]`, or packed `[B, S, (numHeads + 2 * numKvHeads) * headDim]` with key and value null. */
  readonly query: Value;
  /** `[B, S, numKvHeads * headDim]`. */
  readonly key: Value | null;
  readonly value: Value | null;
  /** `[B, numKvHeads, maxLen, headDim]`, in the query's type, or int8 with `kvScales`. */
  readonly pastKey: Value;
  readonly pastValue: Value;
  /** Steps of 8-bit keys and values, float32 [numKvHeads * headDim] each; null where the cache is not quantised. */
  readonly kvScales?: { readonly key: Value; readonly value: Value } | null;
  /** Tokens of the presents where they are not the memory of the pasts. */
  readonly presentLength?: Dimension;
  /** int32 [B], or [1] where runs have one sequence: tokens of each sequence after this run, minus one. */
  readonly seqlensK: Value;
  /** int32 [] or [1]: the largest of those lengths, plus one. */
  readonly totalSequenceLength: Value;
  /** Null where query and key come rotated. */
  readonly rotary: RotaryTables | null;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Tokens a position sees, itself included; null is all before it. */
  readonly localWindowSize: number | null;
  /** Factor of the products of query and key; null means `1 / sqrt(headDim)`. */
  readonly scale: number | null;
  /** Float [numHeads]: a score of each head that takes its share of the softmax and adds nothing; null is none. */
  readonly headSink: Value | null;
  readonly presentKeyName: string;
  readonly presentValueName: string;
}

/** Causal attention with rotary embedding and KV cache in one node; see `BuiltModel` for the ragged batch. */
export function groupQueryAttention(
  graph: GraphBuilder,
  name: string,
  inputs: GroupQueryAttentionInputs,
): { output: Value; presentKey: Value; presentValue: Value } {
  const { query, key, value, pastKey, pastValue, rotary, numHeads, numKvHeads, headDim } = inputs;
  const { kvScales = null } = inputs;
  const node = { name, operator: "GroupQueryAttention" };
  const { elementType } = query;
  checkElementType(node, query, ...floats);
  checkRank(node, query, 3);
  const [batch, length] = query.shape as Shape & readonly [Shape[number], Shape[number]];
  if (numHeads % numKvHeads !== 0) throw nodeError(node, `${numHeads} heads do not divide into ${numKvHeads} groups.`);
  if ((key === null) !== (value === null)) throw nodeError(node, "key and value must both be given or both be packed.");
  if (key === null || value === null) {
    checkShape(node, query, [batch, length, (numHeads + 2 * numKvHeads) * headDim]);
  } else {
    checkShape(node, query, [batch, length, numHeads * headDim]);
    checkShape(node, key, [batch, length, numKvHeads * headDim]);
    checkShape(node, value, [batch, length, numKvHeads * headDim]);
  }
  for (const past of [pastKey, pastValue]) {
    checkElementType(node, past, kvScales === null ? elementType : "int8");
    checkShape(node, past, [batch, numKvHeads, past.shape[2]!, headDim]);
  }
  checkElementType(node, inputs.seqlensK, "int32");
  if (!sameShape(inputs.seqlensK.shape, [1])) checkShape(node, inputs.seqlensK, [batch]);
  checkElementType(node, inputs.totalSequenceLength, "int32");
  if (!sameShape(inputs.totalSequenceLength.shape, [1])) checkShape(node, inputs.totalSequenceLength, []);
  if (rotary !== null && headDim % ROTARY_HEAD_MULTIPLE !== 0) {
    throw nodeError(
      node,
      `the head size ${headDim} is not a multiple of ${ROTARY_HEAD_MULTIPLE}, which the rotary embedding needs.`,
    );
  }
  for (const table of rotary === null ? [] : [rotary.cosCache, rotary.sinCache]) {
    checkElementType(node, table, elementType);
    checkShape(node, table, [table.shape[0]!, headDim / 2]);
  }
  if (inputs.headSink !== null) {
    checkElementType(node, inputs.headSink, elementType);
    checkShape(node, inputs.headSink, [numHeads]);
  }
  for (const scales of kvScales === null ? [] : [kvScales.key, kvScales.value]) {
    checkElementType(node, scales, "float32");
    checkShape(node, scales, [numKvHeads * headDim]);
  }
  const optionalInputs = [
    rotary?.cosCache ?? null,
    rotary?.sinCache ?? null,
    // Positions and a bias of the scores.
    null,
    null,
    inputs.headSink,
    kvScales?.key ?? null,
    kvScales?.value ?? null,
  ];
  while (optionalInputs.at(-1) === null) optionalInputs.pop();
  const presentShape = pastKey.shape.with(2, inputs.presentLength ?? pastKey.shape[2]!);
  const [output, presentKey, presentValue] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [query, key, value, pastKey, pastValue, inputs.seqlensK, inputs.totalSequenceLength, ...optionalInputs],
    attributes: { ...cachedAttentionAttributes(inputs), ...(kvScales !== null && quantisedCacheAttributes) },
    outputs: [
      { name, elementType, shape: [batch, length, numHeads * headDim] },
      { name: inputs.presentKeyName, elementType: pastKey.elementType, shape: presentShape },
      { name: inputs.presentValueName, elementType: pastValue.elementType, shape: presentShape },
    ],
  });
  return { output, presentKey, presentValue };
}

/** Every channel of keys and values has a step of its own. */
const quantisedCacheAttributes: Readonly<Record<string, AttributeValue>> = {
  k_quant_type: { kind: "string", value: "PER_CHANNEL" },
  v_quant_type: { kind: "string", value: "PER_CHANNEL" },
  kv_cache_bit_width: int(8),
};

/** Attributes of the operators that attend to a KV cache, with slots or with blocks. */
export function cachedAttentionAttributes({
  numHeads,
  numKvHeads,
  rotary,
  localWindowSize,
  scale,
}: {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly rotary: RotaryTables | null;
  readonly localWindowSize: number | null;
  readonly scale: number | null;
}): Readonly<Record<string, AttributeValue>> {
  return {
    num_heads: int(numHeads),
    kv_num_heads: int(numKvHeads),
    do_rotary: int(rotary === null ? 0 : 1),
    rotary_interleaved: int(0),
    local_window_size: int(localWindowSize ?? -1),
    ...(scale === null ? {} : { scale: float(scale) }),
  };
}
