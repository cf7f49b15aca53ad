/**
 * Linear layers of groups of rows: each row is multiplied by the weights of its own group. A group has a product of its
 * own over the rows that it has in a run. One without rows takes a few microseconds, and its weights are not read.
 */
import type { GraphBuilder } from "../graph/graph-builder.ts";
import { splitRows } from "../graph/grouping-ops.ts";
import { concat, gatherRows, multiply } from "../graph/standard-ops.ts";
import type { Dimension, Value } from "../graph/value.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { GraphContext } from "./graph-context.ts";
import { quantiseRows, unscaledProduct, type QuantisedRows } from "./int8-product.ts";
import { linearForm, sameForm, type LinearForm } from "./kept-format.ts";
import {
  chainedForm,
  int8Weight,
  project,
  type JointProjection,
  type LinearChain,
  type LinearLayer,
  type ProductNames,
} from "./linear.ts";

/** Inputs of products, [rows, inFeatures]: floats, or quantised if all of the products take them so. */
export type ProductInputs =
  | { readonly kind: "floats"; readonly values: Value }
  | ({ readonly kind: "quantised" } & QuantisedRows);

/** The rows of groups, one group after the other. */
export interface GroupedRows {
  readonly inputs: ProductInputs;
  /** int64 [groups]: the number of rows of each. */
  readonly counts: Value;
}

/** What a group computes: one product, or several over the same rows. */
interface GroupProduct {
  readonly names: ProductNames;
  readonly layers: readonly LinearLayer[];
  readonly form: LinearForm;
}

/** `input` float [rows, inFeatures] in the form that the first layers of the chains take. */
export function inputsOfChains(
  context: GraphContext,
  name: string,
  input: Value,
  chains: readonly LinearChain[],
  format: WeightFormat,
): ProductInputs {
  const forms = chains.flatMap(({ first }) => first.map((layer) => linearForm(context, layer.name, format)));
  return inputsOf(context, name, { kind: "floats", values: input }, forms);
}

/** The rows at `indices` int64 [M]. */
export function gatherInputs(graph: GraphBuilder, name: string, inputs: ProductInputs, indices: Value): ProductInputs {
  if (inputs.kind === "floats") return { kind: "floats", values: gatherRows(graph, name, inputs.values, indices) };
  return {
    kind: "quantised",
    quantised: gatherRows(graph, name, inputs.quantised, indices),
    rowScales: gatherRows(graph, `${name}.scales`, inputs.rowScales, indices),
  };
}

/**
 * Computes `second(between(first(inputs)))` with the chain of each row's group. Layers have no biases; see
 * `chainedLinear`.
 *
 * @param chains One for each group, of equal sizes.
 * @param between Gets the outputs of all groups' first layers.
 */
export function groupedChain(
  context: GraphContext,
  name: string,
  rows: GroupedRows,
  chains: readonly LinearChain[],
  format: WeightFormat,
  between: (projected: JointProjection) => Value,
): Value {
  const chained = chains.map((chain) => chainedForm(context, chain, format));
  const projected = groupedJoint(context, `${name}.first`, rows, { chains, chained, format });
  const second = chains.map(({ second: layer }, group) => ({
    names: { outputName: layer.name, weightName: layer.name },
    layers: [layer],
    form: chained[group]!.form,
  }));
  const inner: GroupedRows = { inputs: { kind: "floats", values: between(projected) }, counts: rows.counts };
  return groupedProducts(context, `${name}.second`, inner, [second])[0]!;
}

/** Like `jointLinear`: one matrix for each group where weights are converted anyway. */
function groupedJoint(
  context: GraphContext,
  name: string,
  rows: GroupedRows,
  {
    chains,
    chained,
    format,
  }: {
    readonly chains: readonly LinearChain[];
    readonly chained: readonly ReturnType<typeof chainedForm>[];
    readonly format: WeightFormat;
  },
): JointProjection {
  const forms = chains.map(({ first }) => first.map((layer) => linearForm(context, layer.name, format)));
  const canBePacked = forms.every(
    ([form, ...others]) => form!.format.kind !== "plain" && others.every((other) => sameForm(form!, other)),
  );
  const productOf = (group: number, layers: readonly LinearLayer[], form: LinearForm, own: string): GroupProduct => {
    const { rowOrder } = chained[group]!;
    return { names: { outputName: own, weightName: own, rowOrder }, layers, form };
  };
  if (canBePacked) {
    const products = chains.map(({ first, second }, group) =>
      productOf(group, first, forms[group]![0]!, `${second.name}.inputs`),
    );
    return { kind: "packed", value: groupedProducts(context, name, rows, [products])[0]! };
  }
  const parts = chains[0]!.first.map((_, part) =>
    chains.map(({ first }, group) => productOf(group, [first[part]!], forms[group]![part]!, first[part]!.name)),
  );
  return { kind: "separate", values: groupedProducts(context, name, rows, parts) };
}

/** [rows, outFeatures] for each list of one product for each group. The rows are split once for all lists. */
function groupedProducts(
  context: GraphContext,
  name: string,
  { inputs, counts }: GroupedRows,
  lists: readonly (readonly GroupProduct[])[],
): Value[] {
  const { graph } = context;
  const forms = lists.flatMap((products) => products.map(({ form }) => form));
  const taken = inputsOf(context, name, inputs, forms);
  const values = taken.kind === "quantised" ? taken.quantised : taken.values;
  const [numRows] = values.shape as readonly [string];
  const parts = splitRows(graph, `${name}.rows`, values, counts);
  return lists.map((products, index) => {
    const own = lists.length === 1 ? name : `${name}.${index}`;
    if (taken.kind === "quantised") {
      const outputs = products.map(({ names, layers, form }, group) =>
        unscaledProduct(graph, names.outputName, parts[group]!, int8Weight(context, names, layers, form.format)),
      );
      return multiply(graph, own, concat(graph, `${own}.product`, outputs, 0, numRows), taken.rowScales);
    }
    const outputs = products.map(({ names, layers, form }, group) =>
      project(withEmptyRows(context, parts[group]!), names, parts[group]!, layers, form),
    );
    return concat(graph, own, outputs, 0, numRows);
  });
}

/** Quantising all rows at once takes a dozen nodes, instead of a dozen for each group. */
function inputsOf(
  context: GraphContext,
  name: string,
  inputs: ProductInputs,
  forms: readonly LinearForm[],
): ProductInputs {
  if (inputs.kind === "quantised" || !forms.every(({ format }) => isInt8(format))) return inputs;
  return { kind: "quantised", ...quantiseRows(context, name, inputs.values) };
}

function isInt8({ kind }: WeightFormat): boolean {
  return kind === "per-channel-int8" || kind === "stored-channels";
}

/** The context of values of a group, which may have no rows. */
function withEmptyRows(context: GraphContext, part: Value): GraphContext {
  return { ...context, emptySizes: new Set<Dimension>([...context.emptySizes, part.shape[0]!]) };
}
