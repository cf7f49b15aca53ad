/** Gated convolutions over the rows and columns of a picture's patches, channel by channel. */
import { depthwiseConvolution } from "../../graph/convolution-op.ts";
import { int64Scalar, int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { cast, concat, divide, gatherRows, multiply, reshape, split, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { patches } from "../patches/patch-rotary.ts";
import type { Lfm3VisionConfig } from "./config.ts";

const [squareRows, squareColumns] = ["plane.squareRows", "plane.squareColumns"];
const [planeRows, planeColumns] = ["plane.rows", "plane.columns"];

/** Shapes that turn patches, square by square, into planes and back. */
export interface PatchPlane {
  /** int64 [5]: rows and columns of squares, rows and columns of patches in each, channels. */
  readonly squares: Value;
  /** int64 [4]: 1, channels, rows and columns of patches. */
  readonly plane: Value;
  /** int64 [5]: channels, rows of squares and of patches in each, columns of both. */
  readonly separate: Value;
}

/** Sizes with as much memory as those of any picture with so many squares: a row of them. */
export function planeSizes(numSquares: number, mergeSize: number): ReadonlyMap<string, number> {
  return new Map([
    [squareRows, 1],
    [squareColumns, numSquares],
    [planeRows, mergeSize],
    [planeColumns, numSquares * mergeSize],
  ]);
}

/** @param grid int64 [1, 3]: 1, rows and columns of patches. */
export function createPatchPlane(
  { graph }: GraphContext,
  { embedDim, mergeSize }: Pick<Lfm3VisionConfig, "embedDim" | "mergeSize">,
  grid: Value,
): PatchPlane {
  const flat = reshapeTo(graph, "plane.grid", grid, [3]);
  const rows = gatherRows(graph, "plane.rows", flat, int64Vector(graph, 1));
  const columns = gatherRows(graph, "plane.columns", flat, int64Vector(graph, 2));
  const side = int64Scalar(graph, mergeSize);
  const ofSquares = (name: string, patchesPerAxis: Value): Value => divide(graph, name, patchesPerAxis, side);
  const numRows = ofSquares("plane.square_rows", rows);
  const numColumns = ofSquares("plane.square_columns", columns);
  const [sides, one] = [int64Vector(graph, mergeSize), int64Vector(graph, 1)];
  const channels = int64Vector(graph, embedDim);
  return {
    squares: concat(graph, "plane.squares", [numRows, numColumns, sides, sides, channels], 0),
    plane: concat(graph, "plane.shape", [one, channels, rows, columns], 0),
    separate: concat(graph, "plane.separate", [channels, numRows, sides, numColumns, sides], 0),
  };
}

/** Equals transformers' Lfm3VlVisionShortConv: float [numPatches, embedDim], normalised, to the same shape. */
export function spatialConvolution(
  context: GraphContext,
  { embedDim, mergeSize, kernelSide }: Pick<Lfm3VisionConfig, "embedDim" | "mergeSize" | "kernelSide">,
  name: string,
  input: Value,
  shapes: PatchPlane,
): Value {
  const { graph, precision } = context;
  const gates = { name: `${name}.in_proj`, inFeatures: embedDim, outFeatures: 3 * embedDim, hasBias: false };
  const sizes = [embedDim, embedDim, embedDim] as const;
  const projected = linear(context, input, gates, precision.vision);
  const [inputGate, outputGate, value] = split(graph, `${name}.parts`, projected, { axis: 1, sizes });
  const gated = multiply(graph, `${name}.gated_input`, inputGate, value);
  const square = [mergeSize, mergeSize];
  const bySquare = reshape(graph, `${name}.squares`, gated, shapes.squares, [
    squareRows,
    squareColumns,
    ...square,
    embedDim,
  ]);
  const byChannel = transpose(graph, `${name}.channels`, bySquare, [4, 0, 2, 1, 3]);
  const plane = reshape(graph, `${name}.plane`, byChannel, shapes.plane, [1, embedDim, planeRows, planeColumns]);
  // CUDA has no kernel for bfloat16.
  const elementType = precision.activations === "bfloat16" ? "float32" : precision.activations;
  const kernel = parameter(context, `${name}.spatial_conv.weight`, [embedDim, 1, kernelSide, kernelSide], elementType);
  const widePlane = cast(graph, `${name}.plane.cast`, plane, elementType);
  const wide = depthwiseConvolution(graph, `${name}.convolved`, widePlane, kernel);
  const convolved = cast(graph, `${name}.convolved.cast`, wide, precision.activations);
  const separate = reshape(graph, `${name}.separate`, convolved, shapes.separate, [
    embedDim,
    squareRows,
    mergeSize,
    squareColumns,
    mergeSize,
  ]);
  const ordered = transpose(graph, `${name}.ordered`, separate, [1, 3, 2, 4, 0]);
  const flat = reshapeTo(graph, `${name}.flat`, ordered, [patches, embedDim]);
  const output = { name: `${name}.out_proj`, inFeatures: embedDim, outFeatures: embedDim, hasBias: false };
  return linear(context, multiply(graph, `${name}.gated_output`, outputGate, flat), output, precision.vision);
}
