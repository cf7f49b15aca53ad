/** Convolutions over 3x3 places of a grid as matrix products, which need no library for convolutions on any device. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { gatherColumns, transpose } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { times, withRow, zeros } from "./picture-rows.ts";

const KERNEL_SIDE = 3;
const KERNEL_PLACES = KERNEL_SIDE ** 2;

export interface ConvolutionOptions {
  /** Name of the convolution in the checkpoint, which has no bias. */
  readonly name: string;
  /** Side of the grid, in places. */
  readonly side: number;
  readonly outChannels: number;
  /** Places from one output to the next. */
  readonly stride: 1 | 2;
}

/** Side of the grid of outputs. */
export function convolvedSide({ side, stride }: Pick<ConvolutionOptions, "side" | "stride">): number {
  return Math.ceil(side / stride);
}

/**
 * The grid has a border of zeros, one place wide.
 *
 * @param input float [pictures, side * side, inChannels].
 * @returns [pictures * places, outChannels], the rows of all pictures.
 */
export function convolve(context: GraphContext, input: Value, options: ConvolutionOptions): Value {
  const { graph, precision } = context;
  const { name, side, outChannels, stride } = options;
  const [pictures, , inChannels] = input.shape as readonly [Dimension, number, number];
  const bordered = withRow(context, `${name}.bordered`, input, zeros(context, [1, 1, inChannels]));
  const neighbours = neighbourRows(side, stride);
  const rows = graph.constant(`neighbours.${side}.${stride}`, "int32", [neighbours.length], neighbours);
  const gathered = gatherColumns(graph, `${name}.neighbours`, bordered, rows);
  const numRows = times(pictures, convolvedSide(options) ** 2);
  const separate = reshapeTo(graph, `${name}.places`, gathered, [numRows, KERNEL_PLACES, inChannels]);
  const byChannel = transpose(graph, `${name}.by_channel`, separate, [0, 2, 1]);
  const inFeatures = inChannels * KERNEL_PLACES;
  const layer = {
    name,
    inFeatures,
    outFeatures: outChannels,
    hasBias: false,
    storedShape: [outChannels, inChannels, KERNEL_SIDE, KERNEL_SIDE],
  };
  // Everything behind it is computed from its outputs, and it is a small part of the work, so it is never quantised.
  const format = { kind: "plain", elementType: precision.activations } as const;
  return linear(context, reshapeTo(graph, `${name}.input`, byChannel, [numRows, inFeatures]), layer, format);
}

/** For each output its nine places, row by row; those of the border are the row behind the grid. */
function neighbourRows(side: number, stride: number): number[] {
  const centres = Array.from({ length: Math.ceil(side / stride) }, (_, index) => index * stride);
  const offsets = [-1, 0, 1];
  const isInside = (place: number): boolean => place >= 0 && place < side;
  return centres.flatMap((row) =>
    centres.flatMap((column) =>
      offsets.flatMap((down) =>
        offsets.map((right) =>
          isInside(row + down) && isInside(column + right) ? (row + down) * side + column + right : side * side,
        ),
      ),
    ),
  );
}
