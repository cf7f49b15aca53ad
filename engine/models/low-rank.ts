/** The update of a linear layer by the adapter that each token's request chose. */
import { invariant } from "../contract/errors.ts";
import { add, addProduct, gatherColumns, gatherRows, gemm, multiply, reshape } from "../graph/standard-ops.ts";
import type { Dimension, Value } from "../graph/value.ts";
import type { AdapterMatrices, AdapterRequest } from "../weights/adapters/prepare-adapters.ts";
import { isFloat, type FloatElementType } from "../weights/float-conversion.ts";
import type { StoredTensor } from "../weights/stored-tensor.ts";
import type { AdapterTokens, GraphContext } from "./graph-context.ts";

interface Projection {
  readonly name: string;
  /** float [tokens, in]. */
  readonly input: Value;
  readonly layers: readonly (AdapterRequest["layers"][number] & Pick<AdapterRequest, "inFeatures">)[];
}

/**
 * The matrices that update these layers; null if no adapter changes any of them, and for a layer that is not computed
 * once for each token, like an expert: adapters that change it are rejected by `requireTensorsOf`.
 */
export function adapterMatrices(
  { weights, adapterTokens }: GraphContext,
  { name, input, layers }: Projection,
): AdapterMatrices | null {
  if (adapterTokens?.ids.has(input.shape[0]!) !== true) return null;
  const { inFeatures } = layers[0]!;
  // Routers may compute in float32, whatever the other layers do.
  const elementType = floatType(input);
  return weights.adapters?.matrices({ name, layers, inFeatures, elementType }) ?? null;
}

/** float [tokens, out]: `product`, with the updates of `input`. */
export function addLowRank(
  context: GraphContext,
  name: string,
  { input, product, matrices }: { readonly input: Value; readonly product: Value; readonly matrices: AdapterMatrices },
): Value {
  const { graph } = context;
  const { numLayers } = matrices;
  const down = activeRows(context, `${name}.adapters.down.active`, matrices.down, numLayers);
  const up = activeRows(context, `${name}.adapters.up.active`, matrices.up, numLayers);
  const columns = gemm(graph, `${name}.adapters.columns`, input, down, null);
  const own = multiply(graph, `${name}.adapters.own`, columns, ownColumns(context, input, numLayers));
  return addProduct(graph, name, { left: own, right: up, sum: product });
}

/** The rows of a matrix that belong to the run's columns. */
function activeRows(context: GraphContext, name: string, stored: StoredTensor, numLayers: number): Value {
  const matrix = context.graph.externalTensor(stored.name, stored);
  const columns = activeColumns(context, numLayers);
  return columns === null ? matrix : gatherRows(context.graph, name, matrix, columns);
}

/** int64 [A * numLayers]: those of each layer one after the other; null for all. */
function activeColumns(context: GraphContext, numLayers: number): Value | null {
  const { graph } = context;
  const { tokens, ranks } = adaptersOf(context);
  if (tokens.columns === null || numLayers === 1) return tokens.columns;
  return shared(tokens, `adapter_columns.of_${numLayers}`, (name) => {
    const widths = Array.from({ length: numLayers }, (_, layer) => layer * sum(ranks));
    const offsets = graph.constant(`${name}.offsets`, "int64", [numLayers, 1], widths);
    const all = add(graph, `${name}.by_layer`, offsets, tokens.columns!);
    return reshape(graph, name, all, graph.constant("any_size", "int64", [1], [-1]), [columnsOf(numLayers)]);
  });
}

/** [tokens, columns] of the input's type: 1 in those of a token's adapter, 0 in all others. */
function ownColumns(context: GraphContext, input: Value, numLayers: number): Value {
  const { graph } = context;
  const { tokens, ranks } = adaptersOf(context);
  const [numTokens] = input.shape as readonly [Dimension];
  const elementType = floatType(input);
  const name = `adapters.of_${numLayers}.${elementType}`;
  const table = (): Value => {
    const owners = ranks.flatMap((rank, index) => Array<number>(rank).fill(index + 1));
    const ofColumns = Array.from({ length: numLayers }, () => owners).flat();
    const numRows = ranks.length + 1;
    const rows = Array.from({ length: numRows }, (_, id) => ofColumns.map((owner) => (owner === id ? 1 : 0))).flat();
    const shape = [numRows, ofColumns.length];
    return graph.constant(name, elementType, shape, rows);
  };
  const active = activeColumns(context, numLayers);
  const byAdapter =
    active === null
      ? table()
      : shared(tokens, `${name}.active`, (chosen) => gatherColumns(graph, chosen, table(), active));
  return shared(tokens, `${name}.${numTokens}`, (own) => gatherRows(graph, own, byAdapter, tokens.ids.get(numTokens)!));
}

function floatType({ name, elementType }: Value): FloatElementType {
  invariant(isFloat(elementType), `${name} is of floats`);
  return elementType;
}

function adaptersOf({ weights, adapterTokens }: GraphContext): {
  readonly tokens: AdapterTokens;
  readonly ranks: readonly number[];
} {
  invariant(adapterTokens !== null && weights.adapters !== undefined, "a layer is updated in a graph with adapters");
  return { tokens: adapterTokens, ranks: weights.adapters.ranks };
}

function shared({ shared: known }: AdapterTokens, name: string, create: (name: string) => Value): Value {
  const made = known.get(name) ?? create(name);
  known.set(name, made);
  return made;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Name of the number of columns of as many layers, where a run has those of its adapters only. */
export function columnsOf(numLayers: number): string {
  return numLayers === 1 ? "A" : `A * ${numLayers}`;
}
