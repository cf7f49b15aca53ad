/**
 * W8A8: int8 weights with a scale per output channel, and activations quantised to 8 bits with a scale per token, so that
 * no token depends on its neighbours in the batch.
 */
import type { GraphBuilder } from "../graph/graph-builder.ts";
import { matMulIntegerToFloat, quantizeLinearPerRow } from "../graph/quantised-ops.ts";
import { reshapeTo } from "../graph/shape-ops.ts";
import { abs, expand, multiply, reduceMaxLast, shapeOf } from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import type { GraphContext } from "./graph-context.ts";

// Processors multiply unsigned activations by signed weights fastest.
const INT8_ZERO_POINT = 128;

export interface Int8Weight {
  /** int8 [in, out]. */
  readonly weight: Value;
  /** float32 [out]. */
  readonly scales: Value;
}

/** float32 [tokens, out]. */
export function int8Product(context: GraphContext, name: string, input: Value, weight: Int8Weight): Value {
  const { quantised, rowScales } = quantiseRows(context, name, input);
  return multiply(context.graph, name, unscaledProduct(context.graph, `${name}.product`, quantised, weight), rowScales);
}

/** Activations: an element is `(quantised - 128) * rowScales`. */
export interface QuantisedRows {
  /** uint8 [tokens, features]. */
  readonly quantised: Value;
  /** float32 [tokens, 1]. */
  readonly rowScales: Value;
}

export function quantiseRows(context: GraphContext, name: string, input: Value): QuantisedRows {
  const { graph } = context;
  const largest = largestMagnitudes(context, name, input);
  const step = graph.constant("int8.step", "float32", [], [1 / 127]);
  // A token of zeros has scale 0, so its quantised values do not matter: the product is multiplied by the scale again.
  const rowScales = multiply(graph, `${name}.row_scales`, largest, step);
  const quantised = quantizeLinearPerRow(graph, `${name}.quantised`, {
    input,
    scales: rowScales,
    zeroPoints: zeroPoints(context, rowScales),
  });
  return { quantised, rowScales };
}

/** float32 [tokens, out], to be multiplied by the scales of the rows: the operator takes one scale for all of them. */
export function unscaledProduct(
  graph: GraphBuilder,
  name: string,
  quantised: Value,
  { weight, scales }: Int8Weight,
): Value {
  return matMulIntegerToFloat(graph, name, {
    input: quantised,
    weight,
    inputScale: graph.constant("int8.one", "float32", [], [1]),
    weightScales: scales,
    inputZeroPoint: graph.constant("int8.zero_point", "uint8", [], [INT8_ZERO_POINT]),
  });
}

/** float [tokens, 1]: the largest magnitude of each token's features. */
function largestMagnitudes({ graph, emptySizes }: GraphContext, name: string, input: Value): Value {
  const tokens = input.shape[0]!;
  const largest = reduceMaxLast(graph, `${name}.largest`, abs(graph, `${name}.magnitudes`, input));
  if (!emptySizes.has(tokens)) return largest;
  // ONNX Runtime 1.30 gives a reduction of zero rows the shape of its input.
  return reshapeTo(graph, `${name}.largest.column`, largest, [tokens, 1]);
}

/** uint8 [tokens, 1], created once for each number of tokens. */
function zeroPoints({ graph, zeroPointsByTokens }: GraphContext, rowScales: Value): Value {
  const tokens = rowScales.shape[0]!;
  let value = zeroPointsByTokens.get(tokens);
  if (value === undefined) {
    const shape = shapeOf(graph, `int8.${tokens}.shape`, rowScales);
    const zeroPoint = graph.constant("int8.zero_point", "uint8", [], [INT8_ZERO_POINT]);
    value = expand(graph, `int8.${tokens}.zero_points`, zeroPoint, shape, [tokens, 1]);
    zeroPointsByTokens.set(tokens, value);
  }
  return value;
}
