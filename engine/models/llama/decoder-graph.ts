/** The decoder graph of the Llama family. Inputs and outputs are those that `DecoderGraph` states. */
import {
  groupQueryAttention,
  quickGelu,
  rotaryEmbedding,
  rotaryHeadMultiple,
  simplifiedLayerNormalization,
  skipSimplifiedLayerNormalization,
  type RotaryTables,
} from "../../graph/contrib-ops.ts";
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import {
  add,
  cast,
  concat,
  gatherRows,
  multiply,
  range,
  reshape,
  scatterRows,
  shapeOf,
  split,
  subtract,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { logitRows, parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, type JointProjection, type LinearLayer } from "../linear.ts";
import type { DecoderConfig } from "./config.ts";
import { ropeTables } from "./rope.ts";

export interface DecoderOptions {
  readonly config: DecoderConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Length of the rotary tables: most tokens of one sequence. */
  readonly maxModelLen: number;
}

// Names of the sizes that are known at run time only; see `DecoderGraph`.
const batch = "B";
const length = "S";
const tokens = "N";
const imageTokens = "M";
const cacheLength = "maxLen";

/** What every layer's attention reads. */
interface AttentionInputs {
  readonly seqlensK: Value;
  readonly totalSequenceLength: Value;
  readonly tables: RotaryTables;
  /** int64 [B, S]; null where attention rotates by itself. */
  readonly positions: Value | null;
  /** int64 [3]: B, S, -1. */
  readonly batchShape: Value;
}

/**
 * Pre-norm transformer. The residual stream is carried as its two last summands, `hidden` (the newest block's output)
 * and `residual` (all before it), because the norm that follows adds them in the same pass.
 */
export function buildDecoderGraph(context: GraphContext, options: DecoderOptions): void {
  const { graph } = context;
  const { config, prefix } = options;
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const attentionInputs = createAttentionInputs(context, options, inputIds);
  const embeddings = embedTokens(context, options, inputIds);
  const rows = graph.input("logit_rows", "int64", [logitRows]);

  let hidden: Value = embeddings;
  let residual: Value | null = null;
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}layers.${layer}`;
    let normalised: Value;
    [normalised, residual] = normalise(context, options, `${name}.input_layernorm`, hidden, residual);
    let attended = attention(context, config, { name: `${name}.self_attn`, layer, input: normalised }, attentionInputs);
    if (layer === config.numLayers - 1) {
      // Nothing after the last attention looks at other tokens, so only those whose logits are wanted go on.
      attended = gatherRows(graph, "last.attended", attended, rows);
      residual = gatherRows(graph, "last.residual", residual, rows);
    }
    hidden = linear(context, attended, outputProjection(config, `${name}.self_attn`), context.precision.linear);
    [normalised, residual] = normalise(context, options, `${name}.post_attention_layernorm`, hidden, residual);
    hidden = gatedPerceptron(context, config, `${name}.mlp`, normalised);
  }
  const [normalised] = normalise(context, options, `${prefix}norm`, hidden, residual);
  graph.output(headProjection(context, options, normalised), [logitRows, config.vocabSize]);
}

function createAttentionInputs(
  { graph, precision }: GraphContext,
  { config, maxModelLen }: DecoderOptions,
  inputIds: Value,
): AttentionInputs {
  const { cos, sin } = ropeTables(config.rope, config.headDim, maxModelLen);
  const tableShape = [maxModelLen, config.headDim / 2];
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const seqlensK = graph.input("seqlens_k", "int32", [batch]);
  const inputShape = shapeOf(graph, "input_ids.shape", inputIds);
  const rotatesItself = config.headDim % rotaryHeadMultiple === 0;
  return {
    seqlensK,
    totalSequenceLength: graph.input("total_sequence_length", "int32", []),
    tables: {
      cosCache: graph.constant("rope.cos", precision.activations, tableShape, cos),
      sinCache: graph.constant("rope.sin", precision.activations, tableShape, sin),
    },
    positions: rotatesItself ? null : tokenPositions(graph, seqlensK, inputShape),
    batchShape: concat(graph, "batch_shape", [inputShape, anySize], 0),
  };
}

/** int64 [B, S]: the last of a sequence's S tokens has position `seqlens_k`. */
function tokenPositions(graph: GraphBuilder, seqlensK: Value, inputShape: Value): Value {
  const one = graph.constant("int64.scalar.1", "int64", [], [1]);
  const numTokens = gatherRows(graph, "input_ids.length", inputShape, one);
  const offsets = range(graph, "positions.offsets", numTokens, length);
  const last = cast(graph, "positions.last", seqlensK, "int64");
  const first = subtract(graph, "positions.first", last, subtract(graph, "positions.span", numTokens, one));
  const columnShape = graph.constant("column_shape", "int64", [2], [-1, 1]);
  const column = reshape(graph, "positions.column", first, columnShape, [batch, 1]);
  return add(graph, "positions", column, offsets);
}

/** [N, hiddenSize]: token embeddings, with image embeddings in the rows that `image_positions` names. */
function embedTokens({ graph, weights, precision }: GraphContext, options: DecoderOptions, inputIds: Value): Value {
  const { config, prefix, acceptsImages } = options;
  const tableName = `${prefix}embed_tokens.weight`;
  const tableShape = [config.vocabSize, config.hiddenSize];
  // Stays as the checkpoint stores it, also where the rest is quantised: a token reads one row, so nothing is gained
  // by making it smaller, and mapped memory is committed for the rows that are read only.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const tableTensor =
    weights.stored(tableName, tableShape) ??
    weights.prepared({ name: "embedding_table", sources: [tableName], shape: tableShape, format }).weight;
  const table = graph.externalTensor("embedding_table", tableTensor);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const flatIds = reshape(graph, "input_ids.flat", inputIds, anySize, [tokens]);
  const gathered = gatherRows(graph, "embedded", table, flatIds);
  const embedded = cast(graph, "embedded.cast", gathered, precision.activations);
  if (!acceptsImages) return embedded;
  const imageEmbeds = graph.input("image_embeds", "float32", [imageTokens, config.hiddenSize]);
  const imagePositions = graph.input("image_positions", "int64", [imageTokens, 1]);
  const updates = cast(graph, "image_embeds.cast", imageEmbeds, precision.activations);
  return scatterRows(graph, "embedded.with_images", embedded, imagePositions, updates);
}

/** The RMS norm of the residual stream, and the stream itself. */
function normalise(
  context: GraphContext,
  { config }: DecoderOptions,
  name: string,
  hidden: Value,
  residual: Value | null,
): [normalised: Value, residual: Value] {
  const { graph } = context;
  const epsilon = config.rmsNormEpsilon;
  const weight = parameter(context, `${name}.weight`, [config.hiddenSize]);
  if (residual === null) {
    return [simplifiedLayerNormalization(graph, name, { input: hidden, weight, epsilon }), hidden];
  }
  const { normalised, sum } = skipSimplifiedLayerNormalization(graph, name, {
    input: hidden,
    skip: residual,
    weight,
    epsilon,
  });
  return [normalised, sum];
}

/** [N, numHeads * headDim], before the output projection. */
function attention(
  context: GraphContext,
  config: DecoderConfig,
  { name, layer, input }: { readonly name: string; readonly layer: number; readonly input: Value },
  shared: AttentionInputs,
): Value {
  const { graph, precision } = context;
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures, hasQkvBias: hasBias } = config;
  const projection = (part: string, heads: number): LinearLayer => ({
    name: `${name}.${part}_proj`,
    inFeatures,
    outFeatures: heads * headDim,
    hasBias,
  });
  const layers = [projection("q", numHeads), projection("k", numKvHeads), projection("v", numKvHeads)];
  const projected = jointLinear(context, `${name}.qkv`, input, layers, precision.linear);
  const batched = (flat: Value, part: string): Value =>
    reshape(graph, `${name}.${part}`, flat, shared.batchShape, [batch, length, flat.shape[1]]);
  let qkv: { query: Value; key: Value | null; value: Value | null };
  if (projected.kind === "packed" && shared.positions === null) {
    qkv = { query: batched(projected.value, "qkv.batched"), key: null, value: null };
  } else {
    const [query, key, value] = separated(graph, `${name}.qkv`, projected, layers);
    qkv = {
      query: rotated(graph, `${name}.query.rotated`, batched(query, "query"), shared),
      key: rotated(graph, `${name}.key.rotated`, batched(key, "key"), shared),
      value: batched(value, "value"),
    };
  }
  const past = (part: string): Value =>
    graph.input(`past.${layer}.${part}`, precision.activations, [batch, numKvHeads, cacheLength, headDim]);
  const { output, presentKey, presentValue } = groupQueryAttention(graph, name, {
    ...qkv,
    seqlensK: shared.seqlensK,
    totalSequenceLength: shared.totalSequenceLength,
    rotary: shared.positions === null ? shared.tables : null,
    pastKey: past("key"),
    pastValue: past("value"),
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: config.slidingWindows[layer],
    presentKeyName: `present.${layer}.key`,
    presentValueName: `present.${layer}.value`,
  });
  graph.output(presentKey);
  graph.output(presentValue);
  const flatShape = graph.constant("attention.flat_shape", "int64", [2], [-1, numHeads * headDim]);
  return reshape(graph, `${name}.flat`, output, flatShape, [tokens, numHeads * headDim]);
}

/** As it is where attention rotates by itself. */
function rotated(graph: GraphBuilder, name: string, input: Value, { positions, tables }: AttentionInputs): Value {
  return positions === null ? input : rotaryEmbedding(graph, name, { input, positions, ...tables });
}

function separated(
  graph: GraphBuilder,
  name: string,
  projected: JointProjection,
  layers: readonly LinearLayer[],
): readonly Value[] {
  if (projected.kind === "separate") return projected.values;
  const sizes = layers.map((layer) => layer.outFeatures);
  return split(graph, `${name}.split`, projected.value, { axis: 1, sizes });
}

function outputProjection(config: DecoderConfig, name: string): LinearLayer {
  return {
    name: `${name}.o_proj`,
    inFeatures: config.numHeads * config.headDim,
    outFeatures: config.hiddenSize,
    hasBias: config.hasOutputBias,
  };
}

/** `down(silu(gate(input)) * up(input))`. */
function gatedPerceptron(context: GraphContext, config: DecoderConfig, name: string, input: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, hasMlpBias: hasBias } = config;
  const layers = ["gate_proj", "up_proj"].map((part) => ({
    name: `${name}.${part}`,
    inFeatures: hiddenSize,
    outFeatures: intermediateSize,
    hasBias,
  }));
  const projected = jointLinear(context, `${name}.gate_up`, input, layers, precision.linear);
  const [gate, up] = separated(graph, `${name}.gate_up`, projected, layers);
  const gated = multiply(graph, `${name}.gated`, quickGelu(graph, `${name}.silu`, gate, 1), up);
  const down = { name: `${name}.down_proj`, inFeatures: intermediateSize, outFeatures: hiddenSize, hasBias };
  return linear(context, gated, down, precision.linear);
}

/** `logits` float32 [R, vocabSize]. */
function headProjection(context: GraphContext, { config, prefix, headName }: DecoderOptions, input: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize: inFeatures, vocabSize: outFeatures } = config;
  const name = config.tieWordEmbeddings ? `${prefix}embed_tokens` : headName;
  const layer = { name, inFeatures, outFeatures, hasBias: false };
  if (precision.activations === "float32") return linear(context, input, layer, precision.head, "logits");
  return cast(graph, "logits", linear(context, input, layer, precision.head), "float32");
}
