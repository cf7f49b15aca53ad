/** Learned tables of positions, resized as transformers does where a picture has another size than they were made for. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast, matMul } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { computeCoefficients } from "../../resample-coefficients.ts";
import type { GraphContext } from "../graph-context.ts";

/**
 * A square table [from * from, width], or with other axes of as many elements, as [to * to, width]: bicubic, and smoothed
 * where it shrinks.
 */
export function resizeSquare(
  context: GraphContext,
  name: string,
  table: Value,
  { from, to, width }: { readonly from: number; readonly to: number; readonly width: number },
): Value {
  const { graph, precision } = context;
  if (from === to) return reshapeTo(graph, `${name}.rows`, table, [to * to, width]);
  const exact = cast(graph, `${name}.float32`, table, "float32");
  const weights = graph.constant(`resize.cubic.${from}.${to}`, "float32", [to, from], cubicWeights(from, to));
  const lines = reshapeTo(graph, `${name}.lines`, exact, [from, from * width]);
  const rows = matMul(graph, `${name}.rows_resized`, weights, lines);
  const places = reshapeTo(graph, `${name}.places`, rows, [to, from, width]);
  const resized = matMul(graph, `${name}.resized`, weights, places);
  return cast(graph, name, reshapeTo(graph, `${name}.rows`, resized, [to * to, width]), precision.activations);
}

/** A table [from, width] as [to, width]: linear, from two neighbours also where it shrinks. */
export function resizeLine(context: GraphContext, name: string, table: Value, to: number): Value {
  const { graph, precision } = context;
  const from = Number(table.shape[0]);
  if (from === to) return table;
  const weights = graph.constant(`resize.linear.${from}.${to}`, "float32", [to, from], linearWeights(from, to));
  return cast(
    graph,
    name,
    matMul(graph, `${name}.resized`, weights, cast(graph, `${name}.float32`, table, "float32")),
    precision.activations,
  );
}

/** Row-major [to, from]: Pillow's filter, which PyTorch's antialiased one equals, with weights rounded to 22 bits. */
function cubicWeights(from: number, to: number): Float32Array {
  const filter = computeCoefficients("bicubic", { inputSize: from, outputSize: to, start: 0, length: to });
  const weights = new Float32Array(to * from);
  for (let output = 0; output < to; output++) {
    const own = filter.weights.subarray(output * filter.maxTaps).slice(0, filter.numTaps[output]);
    const sum = own.reduce((total, weight) => total + weight, 0);
    weights.set(
      Float32Array.from(own, (weight) => weight / sum),
      output * from + filter.starts[output]!,
    );
  }
  return weights;
}

/** Row-major [to, from], by the centres of the places. */
function linearWeights(from: number, to: number): Float32Array {
  const weights = new Float32Array(to * from);
  for (let output = 0; output < to; output++) {
    const place = Math.max(((output + 0.5) * from) / to - 0.5, 0);
    const before = Math.floor(place);
    const share = place - before;
    const behind = Math.min(before + 1, from - 1);
    weights[output * from + before]! += 1 - share;
    weights[output * from + behind]! += share;
  }
  return weights;
}
