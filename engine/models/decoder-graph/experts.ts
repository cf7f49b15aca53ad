/** Mixtures of experts: a few of a layer's gated perceptrons, which a router chooses, compute each token. */
import { choose } from "../../graph/control-flow-ops.ts";
import { ascendingOrder, occurrences, weightedSums } from "../../graph/grouping-ops.ts";
import { less } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { divide, gatherRows, multiply, shapeOf } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation, type ActivationName } from "../activation.ts";
import { branchContext, type GraphContext } from "../graph-context.ts";
import { gatherInputs, groupedChain, inputsOfChains, type ProductInputs } from "../grouped-linear.ts";
import { separate, type LinearChain } from "../linear.ts";
import type { Routes } from "./router.ts";

/** Sizes of the experts of every layer that has them. */
export interface ExpertsShape {
  readonly numExperts: number;
  /** Experts that compute a token. */
  readonly numActive: number;
  readonly intermediateSize: number;
  /** Whether `RouterOptions.factors` are given. Default false. */
  readonly hasFactors?: true;
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
