/**
 * The second encoder of DeepSeek-OCR 2: Qwen2 over SAM's features and as many learned queries behind them. Features see
 * each other, queries see all features and the queries before them, and the queries' rows are the result.
 */
import { multiHeadAttention, rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { less } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, multiply, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import type { DecoderConfig } from "../llama/config.ts";
import { ropeTables } from "../llama/rope.ts";
import { rmsNorm } from "../rms-norm.ts";
import { forEachPicture, joinRows } from "../sam/picture-rows.ts";

/** Added to scores of tokens that are not seen. Far below all others, and in the range of float16. */
const UNSEEN_SCORE = -10_000;

/** Parts of attention that are the same in all layers, for sequences of one length. */
interface Positions {
  /** [1, 1, tokens, tokens]. */
  readonly bias: Value;
  /** int64 [pictures, tokens]. */
  readonly positions: Value;
  readonly cosCache: Value;
  readonly sinCache: Value;
}

/**
 * @param names.prefix Prefix of `layers.0` and `norm`; `queries` is the table of queries, [numQueries, hiddenSize].
 * @param features float [pictures, numQueries, hiddenSize].
 * @returns [pictures, numQueries, hiddenSize].
 */
export function encodeByQueries(
  context: GraphContext,
  config: DecoderConfig,
  { prefix, queries }: { readonly prefix: string; readonly queries: string },
  features: Value,
): Value {
  const { graph } = context;
  const [pictures, numQueries] = features.shape as readonly [Value["shape"][0], number, number];
  const { hiddenSize, rmsNormEpsilon: epsilon } = config;
  const numTokens = 2 * numQueries;
  const table = parameter(context, queries, [numQueries, hiddenSize]);
  const ofPicture = reshapeTo(graph, "queries.table", table, [1, numQueries, hiddenSize]);
  const ofPictures = forEachPicture(context, "queries", ofPicture, features);
  const tokens = concat(graph, "queries.behind_features", [features, ofPictures], 1);
  const positions = createPositions(context, config, features, numQueries);
  const norm = { size: hiddenSize, epsilon };
  let hidden = joinRows(context, "queries.rows", tokens);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}layers.${layer}`;
    const input = rmsNorm(context, `${name}.input_layernorm`, hidden, norm);
    const attended = attention(context, config, `${name}.self_attn`, input, positions);
    const middle = add(graph, `${name}.after_attention`, hidden, attended);
    const raised = gatedPerceptron(
      context,
      `${name}.mlp`,
      rmsNorm(context, `${name}.post_attention_layernorm`, middle, norm),
      {
        size: hiddenSize,
        intermediateSize: config.intermediateSize,
        hasBias: false,
        activation: "silu",
        format: context.precision.vision,
      },
    );
    hidden = add(graph, `${name}.after_mlp`, middle, raised);
  }
  const all = reshapeTo(graph, "queries.tokens", hidden, [pictures, numTokens, hiddenSize]);
  const answers = slice(graph, "queries.only", all, { axis: 1, start: numQueries });
  const normalised = rmsNorm(context, `${prefix}norm`, joinRows(context, "queries.only.rows", answers), norm);
  return reshapeTo(graph, "queries.answers", normalised, [pictures, numQueries, hiddenSize]);
}

/** @param features [pictures, numQueries, ...]. */
function createPositions(
  context: GraphContext,
  { rope, headDim }: DecoderConfig,
  features: Value,
  numQueries: number,
): Positions {
  const { graph, precision } = context;
  const numTokens = 2 * numQueries;
  const { cos, sin } = ropeTables(rope, headDim, numTokens);
  const tableShape = [numTokens, headDim / 2];
  const indices = Array.from({ length: numTokens }, (_, index) => index);
  const key = graph.constant(`queries.keys.${numTokens}`, "int64", [1, numTokens], indices);
  const lastSeen = graph.constant(
    `queries.last_seen.${numTokens}`,
    "int64",
    [numTokens, 1],
    indices.map((index) => Math.max(index, numQueries - 1)),
  );
  const isUnseen = cast(
    graph,
    "queries.unseen.float",
    less(graph, "queries.unseen", lastSeen, key),
    precision.activations,
  );
  const score = graph.constant("queries.unseen.score", precision.activations, [1], [UNSEEN_SCORE]);
  const scores = multiply(graph, "queries.bias.scores", isUnseen, score);
  return {
    bias: reshapeTo(graph, "queries.bias", scores, [1, 1, numTokens, numTokens]),
    positions: forEachPicture(context, "queries.positions", key, features),
    cosCache: graph.constant(`queries.cos.${numTokens}`, precision.activations, tableShape, cos),
    sinCache: graph.constant(`queries.sin.${numTokens}`, precision.activations, tableShape, sin),
  };
}

/** [pictures * tokens, hiddenSize], as the input. */
function attention(
  context: GraphContext,
  config: DecoderConfig,
  name: string,
  input: Value,
  { bias, positions, cosCache, sinCache }: Positions,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, numHeads, numKvHeads, headDim } = config;
  const [pictures, numTokens] = positions.shape as readonly [Value["shape"][0], number];
  const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim] as const;
  const layers = (["q", "k", "v"] as const).map((part, index) => ({
    name: `${name}.${part}_proj`,
    inFeatures: hiddenSize,
    outFeatures: widths[index]!,
    hasBias: true,
  }));
  const joint = jointLinear(context, `${name}.qkv`, input, layers, precision.vision);
  const [query, key, value] = separate(graph, `${name}.qkv`, joint, widths);
  const batched = (part: string, rows: Value): Value =>
    reshapeTo(graph, `${name}.${part}.batched`, rows, [pictures, numTokens, Number(rows.shape[1])]);
  const rotated = (part: string, rows: Value): Value => {
    const turned = { input: batched(part, rows), positions, cosCache, sinCache };
    return rotaryEmbedding(graph, `${name}.${part}.rotated`, turned);
  };
  /** A head of keys and values for each head of queries that reads it. */
  const shared = (part: string, rows: Value): Value => {
    if (numKvHeads === numHeads) return rows;
    const groups = [numTokens, numKvHeads, numHeads / numKvHeads, headDim];
    const single = reshapeTo(graph, `${name}.${part}.groups`, rows, [pictures, numTokens, numKvHeads, 1, headDim]);
    const repeated = forEachPicture(context, `${name}.${part}.repeated`, single, rows, groups);
    return reshapeTo(graph, `${name}.${part}.shared`, repeated, [pictures, numTokens, widths[0]]);
  };
  const attended = multiHeadAttention(graph, name, {
    query: rotated("query", query),
    key: shared("key", rotated("key", key)),
    value: shared("value", batched("value", value)),
    numHeads,
    bias,
  });
  const output = { name: `${name}.o_proj`, inFeatures: widths[0], outFeatures: hiddenSize, hasBias: false };
  return linear(context, joinRows(context, `${name}.flat`, attended), output, precision.vision);
}
