/** Routers of mixtures of experts: which experts compute a token, and by which weights their outputs are added. */
import { topK } from "../../graph/candidate-ops.ts";
import { softmax } from "../../graph/grouping-ops.ts";
import { sigmoid, softplus } from "../../graph/recurrent-ops.ts";
import { gatherElements, greaterOrEqual, sliceRows, sumLast, where } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, divide, gatherRows, multiply, slice, subtract } from "../../graph/standard-ops.ts";
import type { Shape, Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";

export interface RouterOptions {
  /** Whether the weights of a token's experts are divided by their sum, so that they add up to 1. */
  readonly normalises: boolean;
  /** Factor of all weights. Default 1. */
  readonly factor?: number;
  /** float [numExperts]: a factor of each expert's weights. Default: none. */
  readonly factors?: Value;
  /** Default: experts with the largest softmax of their logits are chosen, and these shares are their weights. */
  readonly correction?: RouterCorrection;
}

/**
 * DeepSeek V3's router: the sigmoids of logits are weights, and experts are chosen by them after a correction, among
 * those of the groups whose two largest corrected weights add up to the most. Weights are normalised.
 */
export interface RouterCorrection extends ExpertGroups {
  /** float32 [numExperts], added for the choice only. */
  readonly bias: Value;
}

export interface ExpertGroups {
  /** Groups of as many neighbouring experts each. */
  readonly numGroups: number;
  /** Groups that the experts of a token are chosen from. */
  readonly numActiveGroups: number;
}

/** The experts of each token, the one with the largest weight first if there is no correction. */
export interface Routes {
  /** int64 [N, numActive]. */
  readonly experts: Value;
  /** float [N, numActive]. */
  readonly weights: Value;
}

/**
 * float [N, numExperts] of the linear layer `name`, in floats whatever the other layers are quantised to, also by the
 * checkpoint: kernels for integers round activations, and one rounded logit can choose another expert.
 *
 * @param elementType Default: the activations'.
 */
export function routerLogits(
  context: GraphContext,
  name: string,
  input: Value,
  numExperts: number,
  elementType = context.precision.activations,
): Value {
  const { keepsIntegers: _, ...precision } = context.precision;
  const gate = { name, inFeatures: Number(input.shape[1]), outFeatures: numExperts, hasBias: false };
  const own = cast(context.graph, `${name}.input`, input, elementType);
  return linear({ ...context, precision }, own, gate, { kind: "plain", elementType });
}

/** Chooses experts by the router's `logits` [N, numExperts], and weights them. */
export function route(
  context: GraphContext,
  name: string,
  logits: Value,
  numActive: number,
  { normalises, factor = 1, factors, correction }: RouterOptions,
): Routes {
  const { graph, precision } = context;
  const own = cast(graph, `${name}.logits.cast`, logits, "float32");
  const { values, experts } =
    correction === undefined
      ? largestShares(context, name, own, numActive)
      : corrected(context, name, own, numActive, correction);
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

interface Chosen {
  /** float32 [N, numActive]. */
  readonly values: Value;
  /** int64 [N, numActive]. */
  readonly experts: Value;
}

/** The largest softmaxes of `logits` float32 [N, numExperts], the largest first. */
function largestShares(context: GraphContext, name: string, logits: Value, numActive: number): Chosen {
  const { graph } = context;
  const { rows, own } = neverEmpty(context, name, softmax(graph, `${name}.shares`, logits));
  const { values, columns } = topK(graph, `${name}.chosen`, rows, numActive);
  return { values: own(`${name}.chosen.shares`, values), experts: own(`${name}.chosen.experts`, columns) };
}

/** The sigmoids of `logits` float32 [N, numExperts] that are chosen after their correction. */
function corrected(
  context: GraphContext,
  name: string,
  logits: Value,
  numActive: number,
  correction: RouterCorrection,
): Chosen {
  const { graph } = context;
  const { shares, choices, own } = correctedChoices(context, name, logits, correction);
  const { columns } = topK(graph, `${name}.chosen`, choices, numActive);
  const experts = own(`${name}.chosen.experts`, columns);
  return { values: gatherElements(graph, `${name}.chosen.shares`, shares, experts), experts };
}

/** Far enough below all others that its softmax is 0, also in float16. */
const NOT_CHOSEN = -10_000;

/**
 * float32 [N, numExperts] whose softmax has the weights that `route` gives the experts with a correction, and 0 for all
 * others: for an operator that chooses experts by a softmax.
 */
export function logitsOfChosen(
  context: GraphContext,
  name: string,
  logits: Value,
  numActive: number,
  correction: RouterCorrection,
): Value {
  const { graph } = context;
  const all = cast(graph, `${name}.logits.cast`, logits, "float32");
  const { choices, own } = correctedChoices(context, name, all, correction);
  const { values } = topK(graph, `${name}.chosen`, choices, numActive);
  const condition = greaterOrEqual(graph, `${name}.is_chosen`, choices, lastColumn(graph, `${name}.least`, values));
  // Logarithms of the sigmoids.
  const chosen = subtract(graph, `${name}.log_shares`, all, softplus(graph, `${name}.softplus`, all));
  const other = graph.constant("router.not_chosen", "float32", [], [NOT_CHOSEN]);
  return where(graph, `${name}.of_chosen`, { condition: own(`${name}.is_chosen.own`, condition), chosen, other });
}

interface CorrectedChoices extends Pick<NeverEmpty, "own"> {
  /** float32 [N, numExperts]. */
  readonly shares: Value;
  /** The same after the correction, with one more row if there may be none; minus infinity outside of the best groups. */
  readonly choices: Value;
}

function correctedChoices(
  context: GraphContext,
  name: string,
  logits: Value,
  correction: RouterCorrection,
): CorrectedChoices {
  const { graph } = context;
  const shares = sigmoid(graph, `${name}.shares`, logits);
  const { rows, own } = neverEmpty(context, name, add(graph, `${name}.corrected`, shares, correction.bias));
  return { shares, choices: withinBestGroups(graph, name, rows, correction), own };
}

/** `choices` float32 [N, numExperts], and minus infinity for experts of other groups than the best. */
function withinBestGroups(
  graph: GraphContext["graph"],
  name: string,
  choices: Value,
  { numGroups, numActiveGroups }: ExpertGroups,
): Value {
  if (numActiveGroups === numGroups) return choices;
  const [numRows, numExperts] = choices.shape as readonly [string, number];
  const numGroupRows = `(${numRows}) * ${numGroups}`;
  const shaped = (part: string, value: Value, shape: Shape): Value => reshapeTo(graph, `${name}.${part}`, value, shape);
  const byGroup = shaped("by_group", choices, [numGroupRows, numExperts / numGroups]);
  const bestTwo = topK(graph, `${name}.best_two`, byGroup, 2).values;
  const groups = shaped("groups", sumLast(graph, `${name}.best_two.sum`, bestTwo), [numRows, numGroups]);
  const best = topK(graph, `${name}.best_groups`, groups, numActiveGroups).values;
  const isBest = greaterOrEqual(graph, `${name}.is_best`, groups, lastColumn(graph, `${name}.least_group`, best));
  const condition = shaped("is_best.column", isBest, [numGroupRows, 1]);
  const other = graph.constant("router.of_other_group", "float32", [], [-Infinity]);
  const within = where(graph, `${name}.within_groups`, { condition, chosen: byGroup, other });
  return shaped("within_groups.rows", within, [numRows, numExperts]);
}

/** [N, 1]. */
function lastColumn(graph: GraphContext["graph"], name: string, rows: Value): Value {
  const end = Number(rows.shape[1]);
  return slice(graph, name, rows, { axis: 1, start: end - 1, end });
}

interface NeverEmpty {
  /** [N, numExperts], or [N + 1, numExperts]. */
  readonly rows: Value;
  /** The N rows of what is computed of them. */
  own(this: void, name: string, rows: Value): Value;
}

/**
 * `values` float32 [N, numExperts], with one more row if there may be none: TopK of ONNX Runtime 1.30 ends the process
 * without one.
 */
function neverEmpty({ graph, emptySizes }: GraphContext, name: string, values: Value): NeverEmpty {
  const [size, numExperts] = values.shape as readonly [string, number];
  if (!emptySizes.has(size)) return { rows: values, own: (_, rows) => rows };
  const row = graph.constant(`experts.no_shares.${numExperts}`, "float32", [1, numExperts], Array(numExperts).fill(0));
  const rows = concat(graph, `${name}.and_one_more`, [values, row], 0, `${size} + 1`);
  return { rows, own: (of, more) => sliceRows(graph, of, more, { start: 0, end: -1, size }) };
}
