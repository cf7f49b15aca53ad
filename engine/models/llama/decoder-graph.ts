/** The decoder graph of the Llama family. Its inputs and outputs are those of `DecoderGraph`. */
import {
  quickGelu,
  rotaryEmbedding,
  rotaryHeadMultiple,
  simplifiedLayerNormalization,
  skipSimplifiedLayerNormalization,
  type RotaryTables,
} from "../../graph/contrib-ops.ts";
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { concat, gatherRows, multiply, range, reshape, shapeOf, slice, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import {
  attendToCache,
  batch,
  batched,
  createDecoderInputs,
  embedTokens,
  length,
  outputLogits,
  tokenPositions,
  tokens,
  type DecoderInputs,
} from "../decoder-parts.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, type JointProjection, type LinearLayer } from "../linear.ts";
import type { DecoderConfig } from "./config.ts";
import { ropeTables } from "./rope.ts";

export interface DecoderOptions {
  readonly config: DecoderConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
  /**
   * How many of a head's frequencies rotate with each of a token's three positions, which are then an input of the
   * graph. If left out, a token has one position.
   */
  readonly rotarySections?: readonly [number, number, number];
}

interface Rotary {
  readonly tables: RotaryTables;
  /** int64 [B, S], rows of the tables; null if attention rotates by itself. */
  readonly positions: Value | null;
}

/**
 * Pre-norm transformer. The residual stream is passed on as its last two summands, `hidden` (the newest block's output)
 * and `residual` (everything before), because the next norm adds them in the same pass.
 */
export function buildDecoderGraph(context: GraphContext, options: DecoderOptions): void {
  const { graph } = context;
  const { config, prefix, headName, acceptsImages } = options;
  const inputs = createDecoderInputs(context);
  const rotary = createRotary(context, options, inputs);
  const tableName = `${prefix}embed_tokens.weight`;

  let hidden = embedTokens(context, inputs.inputIds, { tableName, size: config, acceptsImages });
  let residual: Value | null = null;
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}layers.${layer}`;
    let normalised: Value;
    [normalised, residual] = normalise(context, options, `${name}.input_layernorm`, hidden, residual);
    const layerInput = { name: `${name}.self_attn`, layer, input: normalised };
    let attended = attention(context, config, layerInput, inputs, rotary);
    if (layer === config.numLayers - 1) {
      // After the last attention no token depends on others, so only those whose logits are requested continue.
      attended = gatherRows(graph, "last.attended", attended, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    hidden = linear(context, attended, outputProjection(config, `${name}.self_attn`), context.precision.linear);
    [normalised, residual] = normalise(context, options, `${name}.post_attention_layernorm`, hidden, residual);
    hidden = gatedPerceptron(context, config, `${name}.mlp`, normalised);
  }
  const [normalised] = normalise(context, options, `${prefix}norm`, hidden, residual);
  outputLogits(context, normalised, config.tieWordEmbeddings ? `${prefix}embed_tokens` : headName, config);
}

/** Tables of all positions, and whether attention or earlier nodes look them up. */
function createRotary(context: GraphContext, options: DecoderOptions, inputs: DecoderInputs): Rotary {
  const { graph, precision } = context;
  const { config, maxModelLen, rotarySections } = options;
  const { cos, sin } = ropeTables(config.rope, config.headDim, maxModelLen);
  const tableShape = [maxModelLen, config.headDim / 2];
  // Query and key are each multiplied by half of the scores' scale (its root). The CPU's product of one row with many,
  // which decoding uses, has a fast form only without a scale afterwards.
  const rootOfScale = config.headDim ** -0.25;
  const scaled = (table: Float32Array): Float32Array => table.map((value) => value * rootOfScale);
  const tables = {
    cosCache: graph.constant("rope.cos", precision.activations, tableShape, scaled(cos)),
    sinCache: graph.constant("rope.sin", precision.activations, tableShape, scaled(sin)),
  };
  if (rotarySections !== undefined) return sectionedRotary(context, inputs, tables, rotarySections);
  return { tables, positions: config.headDim % rotaryHeadMultiple === 0 ? null : tokenPositions(context, inputs) };
}

/** Every token of the run gets its own row, composed of those of its three positions. */
function sectionedRotary(
  { graph }: GraphContext,
  inputs: DecoderInputs,
  { cosCache, sinCache }: RotaryTables,
  sections: readonly [number, number, number],
): Rotary {
  const positions = graph.input("positions", "int64", [3, tokens]);
  const putTogether = (name: string, table: Value): Value => {
    const rows = gatherRows(graph, `${name}.rows`, table, positions);
    const pieces = split(graph, `${name}.pieces`, rows, { axis: 2, sizes: sections }).map((piece, axis) =>
      slice(graph, `${name}.axis.${axis}`, piece, { axis: 0, start: axis, end: axis + 1 }),
    );
    const [, half] = table.shape;
    const flatShape = graph.constant("rope.flat_shape", "int64", [2], [-1, Number(half)]);
    return reshape(graph, name, concat(graph, `${name}.joined`, pieces, 2), flatShape, [tokens, half]);
  };
  const one = graph.constant("int64.scalar.1", "int64", [], [1]);
  const numTokens = gatherRows(graph, "positions.length", shapeOf(graph, "positions.shape", positions), one);
  const ownRows = range(graph, "positions.own_rows", numTokens, tokens);
  return {
    tables: { cosCache: putTogether("rope.cos.own", cosCache), sinCache: putTogether("rope.sin.own", sinCache) },
    positions: reshape(graph, "positions.rows", ownRows, inputs.inputShape, [batch, length]),
  };
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
  inputs: DecoderInputs,
  rotary: Rotary,
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
  let qkv: { query: Value; key: Value | null; value: Value | null };
  if (projected.kind === "packed" && rotary.positions === null) {
    qkv = { query: batched(context, inputs, `${name}.qkv.batched`, projected.value), key: null, value: null };
  } else {
    const [query, key, value] = separated(graph, `${name}.qkv`, projected, layers);
    qkv = {
      query: rotated(graph, `${name}.query.rotated`, batched(context, inputs, `${name}.query`, query), rotary),
      key: rotated(graph, `${name}.key.rotated`, batched(context, inputs, `${name}.key`, key), rotary),
      value: batched(context, inputs, `${name}.value`, value),
    };
  }
  return attendToCache(context, inputs, {
    name,
    layer,
    ...qkv,
    rotary: rotary.positions === null ? rotary.tables : null,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: config.slidingWindows[layer],
    // The rotary tables contain the scale.
    scale: 1,
  });
}

/** Returns the input unchanged if attention rotates by itself. */
function rotated(graph: GraphBuilder, name: string, input: Value, { positions, tables }: Rotary): Value {
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
