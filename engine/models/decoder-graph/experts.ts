/** Mixtures of experts: a router chooses a few of a layer's gated perceptrons for each token and weights their outputs. */
import { topK } from "../../graph/candidate-ops.ts";
import { choose } from "../../graph/control-flow-ops.ts";
import { ascendingOrder, occurrences, softmax, weightedSums } from "../../graph/grouping-ops.ts";
import { less, sliceRows, sumLast } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { cast, concat, divide, gatherRows, multiply, shapeOf } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation, type ActivationName } from "../activation.ts";
import { branchContext, type GraphContext } from "../graph-context.ts";
import { gatherInputs, groupedChain, inputsOfChains, type ProductInputs } from "../grouped-linear.ts";
import { linear, separate, type LinearChain } from "../linear.ts";

/** Sizes of the experts of every layer that has them. */
export interface ExpertsShape {
  readonly numExperts: number;
  /** Experts that compute a token. */
  readonly numActive: number;
  readonly intermediateSize: number;
  /** Whether `RouterOptions.factors` are given. Default false. */
  readonly hasFactors?: true;
}

export interface RouterOptions {
  /** Whether the weights of a token's experts are divided by their sum, so that they add up to 1. */
  readonly normalises: boolean;
  /** Factor of all weights. Default 1. */
  readonly factor?: number;
  /** float [numExperts]: a factor of each expert's weights. Default: none. */
  readonly factors?: Value;
}

/** The experts of each token, the one with the largest weight first. */
interface Routes {
  /** int64 [N, numActive]. */
  readonly experts: Value;
  /** float [N, numActive]. */
  readonly weights: Value;
}

/**
 * float [N, numExperts] of the linear layer `name`, in the activations' type whatever the others are quantised to, also
 * by the checkpoint: kernels for integers round activations, and one rounded logit can choose another expert.
 */
export function routerLogits(context: GraphContext, name: string, input: Value, numExperts: number): Value {
  const { keepsIntegers: _, ...precision } = context.precision;
  const gate = { name, inFeatures: Number(input.shape[1]), outFeatures: numExperts, hasBias: false };
  return linear({ ...context, precision }, input, gate, { kind: "plain", elementType: precision.activations });
}

export interface MixtureInput {
  /** [N, hiddenSize]. */
  readonly input: Value;
  /** [N, numExperts] of the router. */
  readonly logits: Value;
  /** Name of the router. */
  readonly router: string;
  readonly activation: ActivationName;
}

/** Chooses the experts with the largest softmax of `logits` [N, numExperts]. Their shares among all experts are weights. */
export function route(
  context: GraphContext,
  name: string,
  logits: Value,
  numActive: number,
  { normalises, factor = 1, factors }: RouterOptions,
): Routes {
  const { graph, precision } = context;
  const shares = softmax(graph, `${name}.shares`, cast(graph, `${name}.logits.cast`, logits, "float32"));
  const { values, experts } = largestShares(context, name, shares, numActive);
  let weights = values;
  if (normalises) {
    const sums = sumLast(graph, `${name}.sum`, values);
    const column = reshapeTo(graph, `${name}.sum.column`, sums, [values.shape[0]!, 1]);
    weights = divide(graph, `${name}.normalised`, values, column);
  }
  if (factor !== 1) {
    weights = multiply(graph, `${name}.scaled`, weights, graph.constant(`factor.${factor}`, "float32", [], [factor]));
  }
  weights = cast(graph, `${name}.weights`, weights, precision.activations);
  if (factors !== undefined) {
    weights = multiply(graph, `${name}.by_expert`, weights, gatherRows(graph, `${name}.factors`, factors, experts));
  }
  return { experts, weights };
}

/** [N, numActive] of `shares` float32 [N, numExperts], the largest first. */
function largestShares(
  { graph, emptySizes }: GraphContext,
  name: string,
  shares: Value,
  numActive: number,
): { readonly values: Value; readonly experts: Value } {
  const [size, numExperts] = shares.shape as readonly [string, number];
  if (!emptySizes.has(size)) {
    const { values, columns } = topK(graph, `${name}.chosen`, shares, numActive);
    return { values, experts: columns };
  }
  // TopK of ONNX Runtime 1.30 ends the process if there is no row.
  const row = graph.constant(`experts.no_shares.${numExperts}`, "float32", [1, numExperts], Array(numExperts).fill(0));
  const more = concat(graph, `${name}.and_one_more`, [shares, row], 0, `${size} + 1`);
  const { values, columns } = topK(graph, `${name}.chosen`, more, numActive);
  const rows = { start: 0, end: -1, size };
  return {
    values: sliceRows(graph, `${name}.chosen.shares`, values, rows),
    experts: sliceRows(graph, `${name}.chosen.experts`, columns, rows),
  };
}

interface RoutedInput {
  readonly routes: Routes;
  readonly activation: ActivationName;
}

/**
 * Sums of the outputs of each token's experts, `down(activation(gate(x)) * up(x))`, by their weights: [N, hiddenSize].
 * Rows are sorted by expert, each expert computes its own, and they return to their tokens. Only the weights of chosen
 * experts are read.
 *
 * @param name Experts have the tensors `{name}.experts.{index}.gate_proj.weight` and so on.
 */
export function routedExperts(
  context: GraphContext,
  shape: ExpertsShape,
  name: string,
  input: Value,
  routed: RoutedInput,
): Value {
  const { graph } = context;
  const zero = int64Scalar(graph, 0);
  const numTokens = gatherRows(graph, `${name}.num_tokens`, shapeOf(graph, `${name}.tokens`, input, 1), zero);
  const chains = chainsOf(shape, name, Number(input.shape[1]));
  const inputs = inputsOfChains(context, `${name}.experts`, input, chains, context.precision.linear);
  // A graph of its own for each layer: when a session loads, ONNX Runtime compares the sizes of each value of a graph
  // with those of all values before it that have no reader left. The experts of all layers together would take minutes.
  const [mixed] = choose(graph, `${name}.choice`, {
    names: [`${name}.mixed`],
    condition: less(graph, `${name}.has_tokens`, zero, numTokens),
    chosen: () => [chosenExperts(branchContext(context), shape, name, { input, inputs, chains }, routed)],
    other: () => [multiply(graph, `${name}.no_tokens`, input, input)],
  });
  return mixed;
}

/** The perceptron of each expert. */
function chainsOf(
  { numExperts, intermediateSize }: ExpertsShape,
  name: string,
  hiddenSize: number,
): readonly LinearChain[] {
  return Array.from({ length: numExperts }, (_, index) => {
    const expert = `${name}.experts.${index}`;
    const first = ["gate_proj", "up_proj"].map((part) => ({
      name: `${expert}.${part}`,
      inFeatures: hiddenSize,
      outFeatures: intermediateSize,
      hasBias: false,
    }));
    const down = { inFeatures: intermediateSize, outFeatures: hiddenSize, hasBias: false };
    return { first, second: { name: `${expert}.down_proj`, ...down } };
  });
}

interface ExpertsInput {
  /** [N, hiddenSize], N at least 1. */
  readonly input: Value;
  /** The same as the chains take it. */
  readonly inputs: ProductInputs;
  readonly chains: readonly LinearChain[];
}

function chosenExperts(
  context: GraphContext,
  { numExperts, numActive, intermediateSize }: ExpertsShape,
  name: string,
  { input, inputs, chains }: ExpertsInput,
  { routes: { experts, weights }, activation }: RoutedInput,
): Value {
  const { graph } = context;
  const [numTokens, hiddenSize] = input.shape as readonly [string, number];
  const numRows = `${numTokens} * ${numActive}`;
  const expertOfRow = reshapeTo(graph, `${name}.expert_of_row`, experts, [numRows]);
  const order = ascendingOrder(graph, `${name}.order`, expertOfRow);
  const tokenOfRow = divide(graph, `${name}.token_of_row`, order, int64Scalar(graph, numActive));
  const sorted = gatherInputs(graph, `${name}.sorted`, inputs, tokenOfRow);
  const rows = { inputs: sorted, counts: occurrences(graph, `${name}.rows_of_expert`, expertOfRow, numExperts) };
  const part = `${name}.experts`;
  const { linear: format } = context.precision;
  const outputs = groupedChain(context, part, rows, chains, format, (joint) => {
    const [gate, up] = separate(graph, `${part}.gate_up`, joint, [intermediateSize, intermediateSize] as const);
    return multiply(graph, `${part}.gated`, applyActivation(graph, `${part}.activation`, gate, activation), up);
  });

  // Places of the rows among the sorted ones.
  const places = ascendingOrder(graph, `${name}.places`, order);
  const returned = gatherRows(graph, `${name}.returned`, outputs, places);
  const byToken = reshapeTo(graph, `${name}.by_token`, returned, [numTokens, numActive, hiddenSize]);
  return weightedSums(graph, `${name}.sums`, weights, byToken);
}
