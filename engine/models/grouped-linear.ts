/**
 * Linear layers of groups of rows: each row is multiplied by the weights of its own group. A group has a product of its
 * own over the rows that it has in a run. One without rows takes some microseconds, and its weights are not read.
 */
import { splitRows } from "../graph/grouping-ops.ts";
import { concat, multiply } from "../graph/standard-ops.ts";
import type { Dimension, Value } from "../graph/value.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { GraphContext } from "./graph-context.ts";
import { quantiseRows, unscaledProduct } from "./int8-product.ts";
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

/** What a group computes: one product, or several over the same rows. */
interface GroupProduct {
  readonly names: ProductNames;
  readonly layers: readonly LinearLayer[];
  readonly form: LinearForm;
}

/**
 * Computes `second(between(first(input)))` with the chain of each row's group. Layers have no biases; see `chainedLinear`.
 *
 * @param input [rows, inFeatures], the rows of a group one after the other.
 * @param counts int64 [groups]: the number of rows of each.
 * @param chains One for each group, of equal sizes.
 * @param between Gets the outputs of all groups' first layers.
 */
export function groupedChain(
  context: GraphContext,
  name: string,
  { input, counts }: { readonly input: Value; readonly counts: Value },
  chains: readonly LinearChain[],
  format: WeightFormat,
  between: (projected: JointProjection) => Value,
): Value {
  const chained = chains.map((chain) => chainedForm(context, chain, format));
  const rows = { input, counts };
  const projected = groupedJoint(context, `${name}.first`, rows, { chains, chained, format });
  const second = chains.map(({ second: layer }, group) => ({
    names: { outputName: layer.name, weightName: layer.name },
    layers: [layer],
    form: chained[group]!.form,
  }));
  return groupedProduct(context, `${name}.second`, { input: between(projected), counts }, second);
}

/** Like `jointLinear`: one matrix for each group where weights are converted anyway. */
function groupedJoint(
  context: GraphContext,
  name: string,
  rows: { readonly input: Value; readonly counts: Value },
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
    return { kind: "packed", value: groupedProduct(context, name, rows, products) };
  }
  const values = chains[0]!.first.map((_, part) => {
    const products = chains.map(({ first }, group) =>
      productOf(group, [first[part]!], forms[group]![part]!, first[part]!.name),
    );
    return groupedProduct(context, `${name}.${part}`, rows, products);
  });
  return { kind: "separate", values };
}

function groupedProduct(
  context: GraphContext,
  name: string,
  { input, counts }: { readonly input: Value; readonly counts: Value },
  products: readonly GroupProduct[],
): Value {
  const { graph } = context;
  const [rows] = input.shape as readonly [string];
  if (products.every(({ form }) => isInt8(form.format))) {
    // Quantising all rows at once takes a dozen nodes, instead of a dozen for each group.
    const { quantised, rowScales } = quantiseRows(context, name, input);
    const parts = splitRows(graph, `${name}.rows`, quantised, counts);
    const values = products.map(({ names, layers, form }, group) =>
      unscaledProduct(graph, names.outputName, parts[group]!, int8Weight(context, names, layers, form.format)),
    );
    return multiply(graph, name, concat(graph, `${name}.product`, values, 0, rows), rowScales);
  }
  const parts = splitRows(graph, `${name}.rows`, input, counts);
  const values = products.map(({ names, layers, form }, group) =>
    project(withEmptyRows(context, parts[group]!), names, parts[group]!, layers, form),
  );
  return concat(graph, name, values, 0, rows);
}

function isInt8({ kind }: WeightFormat): boolean {
  return kind === "per-channel-int8" || kind === "stored-channels";
}

/** The context of values of a group, which may have no rows. */
function withEmptyRows(context: GraphContext, part: Value): GraphContext {
  return { ...context, emptySizes: new Set<Dimension>([...context.emptySizes, part.shape[0]!]) };
}
