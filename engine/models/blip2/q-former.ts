/** BLIP-2's Q-Former: learned query tokens attend to each other and, in every n-th layer, to a picture. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { add, concat, expand, layerNormalization, reshape, shapeOf } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { QFormerConfig } from "./config.ts";

export interface QFormerTensors {
  /** Prefix of the Q-Former's tensors, e.g. "qformer." */
  readonly prefix: string;
  /** Tensor [1, numQueryTokens, hiddenSize]. */
  readonly queryTokens: string;
}

/**
 * Post-norm transformer over the query tokens, the same for every picture.
 *
 * @param states The vision model's states, [numImages, numTokens, encoderHiddenSize].
 * @returns [numImages * numQueryTokens, hiddenSize].
 */
export function buildQFormer(
  context: GraphContext,
  config: QFormerConfig,
  { prefix, queryTokens }: QFormerTensors,
  states: Value,
): Value {
  const { graph } = context;
  const { hiddenSize, numQueryTokens } = config;
  const [images] = states.shape as Shape3;
  const queries = parameter(context, queryTokens, [1, numQueryTokens, hiddenSize]);
  const size = graph.constant("queries.size", "int64", [2], [numQueryTokens, hiddenSize]);
  const repeated = concat(graph, "queries.shape", [shapeOf(graph, "num_states", states, 1), size], 0);
  const perImage = expand(graph, "queries", queries, repeated, [images, numQueryTokens, hiddenSize]);
  return attendToStates(context, config, prefix, perImage, states);
}

/**
 * The same for queries that differ between pictures.
 *
 * @param queries [numImages, numQueryTokens, hiddenSize].
 */
export function attendToStates(
  context: GraphContext,
  config: QFormerConfig,
  prefix: string,
  queries: Value,
  states: Value,
): Value {
  const { graph } = context;
  const { hiddenSize, numQueryTokens, numLayers, crossAttentionFrequency } = config;
  const [images, numTokens, stateSize] = states.shape as Shape3;
  const builder: LayerBuilder = {
    context,
    config,
    shape: [images, numQueryTokens, hiddenSize],
    target: graph.constant("queries.batch_shape", "int64", [3], [-1, numQueryTokens, hiddenSize]),
    states: {
      flat: reshape(
        graph,
        `${prefix}states.flat`,
        states,
        graph.constant("states.flat_shape", "int64", [2], [-1, stateSize]),
        [`${images} * numStates`, stateSize],
      ),
      shape: [images, numTokens, hiddenSize],
      target: graph.constant("states.batch_shape", "int64", [3], [-1, numTokens, hiddenSize]),
    },
  };
  let hidden = norm(builder, `${prefix}layernorm`, flatten(builder, `${prefix}queries.flat`, queries));
  for (let layer = 0; layer < numLayers; layer++) {
    const name = `${prefix}encoder.layer.${layer}`;
    hidden = attention(builder, `${name}.attention`, hidden, null);
    if (layer % crossAttentionFrequency === 0) {
      hidden = attention(builder, `${name}.crossattention`, hidden, builder.states);
    }
    hidden = feedForward(builder, name, hidden);
  }
  return hidden;
}

type Shape3 = readonly [images: Value["shape"][number], numTokens: number, size: number];

/** What keys and values are made of, and how they are laid out. */
interface Attended {
  readonly flat: Value;
  readonly shape: Shape3;
  /** `shape` at run time. */
  readonly target: Value;
}

interface LayerBuilder {
  readonly context: GraphContext;
  readonly config: QFormerConfig;
  readonly shape: Shape3;
  readonly target: Value;
  readonly states: Attended;
}

/** @param attended The picture's states; null for the query tokens themselves. */
function attention(builder: LayerBuilder, name: string, hidden: Value, attended: Attended | null): Value {
  const { context, config, shape, target } = builder;
  const { graph } = context;
  const { hiddenSize, encoderHiddenSize, numHeads } = config;
  const from: Attended = attended ?? { flat: hidden, shape, target };
  const inFeatures = attended === null ? hiddenSize : encoderHiddenSize;
  const project = (part: string, input: Value, features: number, to: Pick<Attended, "shape" | "target">): Value => {
    const flat = dense(context, `${name}.attention.${part}`, input, features, hiddenSize);
    return reshape(graph, `${name}.attention.${part}.batch`, flat, to.target, to.shape);
  };
  const output = multiHeadAttention(graph, `${name}.attention`, {
    query: project("query", hidden, hiddenSize, { shape, target }),
    key: project("key", from.flat, inFeatures, from),
    value: project("value", from.flat, inFeatures, from),
    numHeads,
  });
  const flat = flatten(builder, `${name}.attention.flat`, output);
  const projected = dense(context, `${name}.output.dense`, flat, hiddenSize, hiddenSize);
  return norm(builder, `${name}.output.LayerNorm`, add(graph, `${name}.sum`, projected, hidden));
}

function feedForward(builder: LayerBuilder, name: string, hidden: Value): Value {
  const { context, config } = builder;
  const { graph } = context;
  const { hiddenSize, intermediateSize } = config;
  const up = dense(context, `${name}.intermediate_query.dense`, hidden, hiddenSize, intermediateSize);
  const activated = applyActivation(graph, `${name}.intermediate_query.activation`, up, config.activation);
  const down = dense(context, `${name}.output_query.dense`, activated, intermediateSize, hiddenSize);
  return norm(builder, `${name}.output_query.LayerNorm`, add(graph, `${name}.sum`, down, hidden));
}

function dense(context: GraphContext, name: string, input: Value, inFeatures: number, outFeatures: number): Value {
  return linear(context, input, { name, inFeatures, outFeatures, hasBias: true }, context.precision.vision);
}

function norm({ context, config }: LayerBuilder, name: string, input: Value): Value {
  const weight = parameter(context, `${name}.weight`, [config.hiddenSize]);
  const bias = parameter(context, `${name}.bias`, [config.hiddenSize]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: config.layerNormEpsilon });
}

function flatten({ context: { graph }, config, shape }: LayerBuilder, name: string, input: Value): Value {
  const target = graph.constant("queries.flat_shape", "int64", [2], [-1, config.hiddenSize]);
  return reshape(graph, name, input, target, [`${shape[0]} * numQueryTokens`, config.hiddenSize]);
}
