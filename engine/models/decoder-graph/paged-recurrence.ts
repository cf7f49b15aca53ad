/**
 * Recurrent layers of a packed run, the CPU reference: the states of each sequence are gathered from the row that
 * `state_rows` names, computed, and scattered to the row in `new_state_rows`. The delta rule runs over sequences padded
 * to the longest, whose padding changes no state. The indices are computed once for all layers. Like the reference of
 * paged attention, this form is for tests and for machines without a GPU.
 */
import { quickGelu } from "../../graph/contrib-ops.ts";
import { gatedDeltaRule } from "../../graph/recurrent-ops.ts";
import { greaterOrEqual, less, where } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  concat,
  gatherRows,
  multiply,
  range,
  reduceMaxLast,
  reshape,
  scatterRows,
  shapeOf,
  split,
  subtract,
  transpose,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { CachedConvolution, CachedRecurrence, DecoderInputs } from "./decoder-inputs.ts";
import { asColumn, type sequenceBounds, type TokenPlaces } from "./paged-inputs.ts";
import { batch, longestRun, stateRows, tokens } from "./sizes.ts";

export interface PackedSequences {
  readonly tokenIds: Value;
  readonly bounds: ReturnType<typeof sequenceBounds>;
  /** int64 [N]: each token's sequence. */
  readonly sequences: TokenPlaces["sequences"];
}

/** Inputs that all layers share. */
interface RecurrenceIndex {
  /** int64 [B]. */
  readonly rows: Value;
  /** int64 [B, 1]: rows of the new states. */
  readonly newRows: Value;
  /** int64 [B]: tokens of the run. */
  readonly lengths: Value;
  /** int64 [N]: the token's index among the run's tokens of its sequence. */
  readonly local: Value;
  /** int64 []. */
  readonly numSequences: Value;
  /** int64 [B, T]: the tokens of each sequence; any token where the sequence has ended. */
  readonly padded: Value;
  /** bool [B, T, 1]. */
  readonly isToken: Value;
  /** int64 [N]: the token's row among the B * T. */
  readonly paddedRows: Value;
}

/** The inputs of the graph are added for the first recurrent layer. */
export function createPagedRecurrence(
  context: GraphContext,
  packed: PackedSequences,
): Pick<DecoderInputs, "convolve" | "recur"> {
  let made: RecurrenceIndex | null = null;
  const index = (): RecurrenceIndex => (made ??= createIndex(context, packed));
  return {
    convolve: (convolution) => convolve(context, convolution, packed, index()),
    recur: (recurrence) => recur(context, recurrence, index()),
  };
}

function scalar({ graph }: GraphContext, value: number): Value {
  return int64Scalar(graph, value);
}

function createIndex(context: GraphContext, { tokenIds, bounds, sequences }: PackedSequences): RecurrenceIndex {
  const { graph } = context;
  const { starts, ends } = bounds;
  const rows = graph.input("state_rows", "int64", [batch]);
  const lengths = subtract(graph, "state.lengths", ends, starts);
  const numTokens = gatherRows(graph, "state.num_tokens", shapeOf(graph, "state.tokens", tokenIds), scalar(context, 0));
  const numSequences = gatherRows(graph, "state.num_rows", shapeOf(graph, "state.rows", rows), scalar(context, 0));
  const order = range(graph, "state.order", numTokens, tokens);
  const local = subtract(graph, "state.local", order, gatherRows(graph, "state.start", starts, sequences));
  const numSteps = gatherRows(graph, "state.longest", reduceMaxLast(graph, "state.max", lengths), scalar(context, 0));
  const steps = range(graph, "state.steps", numSteps, longestRun);
  const isToken = less(graph, "state.is_token", steps, asColumn(context, "state.lengths", lengths));
  const grid = add(graph, "state.grid", asColumn(context, "state.starts", starts), steps);
  const cubeShape = graph.constant("state.cube_shape", "int64", [3], [0, 0, 1]);
  return {
    rows,
    newRows: asColumn(context, "state.new_rows", graph.input("new_state_rows", "int64", [batch])),
    lengths,
    local,
    numSequences,
    padded: where(graph, "state.padded", { condition: isToken, chosen: grid, other: scalar(context, 0) }),
    isToken: reshape(graph, "state.is_token.cube", isToken, cubeShape, [batch, longestRun, 1]),
    paddedRows: add(graph, "state.padded_rows", multiply(graph, "state.first_row", sequences, numSteps), local),
  };
}

/**
 * The inputs before a sequence's first token come from its state. Both lie in one list, the states of all sequences
 * first; every tap of the kernel, and the new state, is a gather from it.
 */
function convolve(
  context: GraphContext,
  { name, layer, input, kernel, bias, activation }: CachedConvolution,
  { sequences, bounds: { starts } }: PackedSequences,
  { rows, newRows, lengths, local, numSequences }: RecurrenceIndex,
): Value {
  const { graph, precision } = context;
  const [channels, , kernelSize] = kernel.shape.map(Number) as [number, number, number];
  const numKept = kernelSize - 1;
  const past = graph.input(`past.${layer}.convolution`, precision.activations, [stateRows, numKept, channels]);
  const kept = gatherRows(graph, `${name}.kept`, past, rows);
  const keptRows = reshapeTo(graph, `${name}.kept.rows`, kept, [`${batch} * ${numKept}`, channels]);
  const joined = concat(graph, `${name}.list`, [keptRows, input], 0, `${batch} * ${numKept} + ${tokens}`);
  const numKeptRows = multiply(graph, `${name}.num_kept`, numSequences, scalar(context, numKept));
  /** Places in the list of tokens of the run (0 and above) and of those before them (negative). */
  const placesOf = (part: string, token: Value, ofSequence: Value, start: Value): Value => {
    const own = add(graph, `${part}.own`, add(graph, `${part}.in_run`, token, start), numKeptRows);
    const first = multiply(graph, `${part}.first`, ofSequence, scalar(context, numKept));
    const before = add(graph, `${part}.before`, add(graph, `${part}.behind`, token, scalar(context, numKept)), first);
    const isOwn = greaterOrEqual(graph, `${part}.is_own`, token, scalar(context, 0));
    return where(graph, `${part}.place`, { condition: isOwn, chosen: own, other: before });
  };
  const flatKernel = reshape(
    graph,
    `${name}.kernel.flat`,
    kernel,
    graph.constant(`heads_of.${kernelSize}`, "int64", [2], [-1, kernelSize]),
    [channels, kernelSize],
  );
  const weights = split(graph, `${name}.taps`, transpose(graph, `${name}.kernel.rows`, flatKernel, [1, 0]), {
    axis: 0,
    sizes: Array.from({ length: kernelSize }, () => 1),
  });
  const startOfToken = gatherRows(graph, `${name}.start`, starts, sequences);
  const taps = weights.map((weight, tap) => {
    const part = `${name}.tap.${tap}`;
    const token = subtract(graph, `${part}.token`, local, scalar(context, numKept - tap));
    const place = placesOf(part, token, sequences, startOfToken);
    return multiply(graph, `${part}.product`, gatherRows(graph, `${part}.rows`, joined, place), weight);
  });
  const sum = taps.reduce((total, tap, index) => add(graph, `${name}.sum.${index}`, total, tap));

  const order = graph.constant(`state.kept.${numKept}`, "int64", [1, numKept], [...Array(numKept).keys()]);
  const firstKept = subtract(graph, `${name}.first_kept`, lengths, scalar(context, numKept));
  const newest = add(graph, `${name}.newest`, asColumn(context, `${name}.first_kept`, firstKept), order);
  const everySequence = range(graph, `${name}.every`, numSequences, batch);
  const places = placesOf(
    `${name}.newest`,
    newest,
    asColumn(context, `${name}.every`, everySequence),
    asColumn(context, `${name}.starts`, starts),
  );
  const updates = gatherRows(graph, `${name}.updates`, joined, places);
  graph.output(scatterRows(graph, `present.${layer}.convolution`, past, newRows, updates));
  const biased = bias === null ? sum : add(graph, `${name}.biased`, sum, bias);
  return activation === "none" ? biased : quickGelu(graph, `${name}.silu`, biased, 1);
}

function recur(
  context: GraphContext,
  { name, layer, numKeyHeads, numValueHeads, keyDim, valueDim, ...rows }: CachedRecurrence,
  { rows: ofSequence, newRows, padded, isToken, paddedRows }: RecurrenceIndex,
): Value {
  const { graph } = context;
  const gathered = (part: "query" | "key" | "value" | "decay" | "beta"): Value =>
    gatherRows(graph, `${name}.${part}.padded`, rows[part], padded);
  const none = graph.constant("float32.zero", "float32", [], [0]);
  const gate = (part: "decay" | "beta"): Value =>
    where(graph, `${name}.${part}.own`, { condition: isToken, chosen: gathered(part), other: none });
  const past = graph.input(`past.${layer}.state`, "float32", [stateRows, numValueHeads, keyDim, valueDim]);
  const { output, present } = gatedDeltaRule(graph, name, {
    query: gathered("query"),
    key: gathered("key"),
    value: gathered("value"),
    decay: gate("decay"),
    beta: gate("beta"),
    past: gatherRows(graph, `${name}.kept`, past, ofSequence),
    numKeyHeads,
    presentName: `${name}.new`,
  });
  graph.output(scatterRows(graph, `present.${layer}.state`, past, newRows, present));
  const width = numValueHeads * valueDim;
  const flat = reshapeTo(graph, `${name}.flat`, output, [`${batch} * ${longestRun}`, width]);
  return gatherRows(graph, `${name}.rows`, flat, paddedRows);
}
