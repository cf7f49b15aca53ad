/**
 * HunyuanOCR's rotary embedding (XD-RoPE): a token has four positions, each for a quarter of the dimensions of a head. The
 * two dimensions of a pair belong to different positions, so this is no rotation where the positions differ, and none of
 * ONNX Runtime's operators computes it.
 */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, concat, gatherRows, multiply, slice, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { DecoderInputs } from "../decoder-graph/decoder-inputs.ts";
import { tokens } from "../decoder-graph/sizes.ts";
import type { GraphContext } from "../graph-context.ts";
import type { RotateHeads } from "../llama/decoder-graph.ts";
import { ropeTables, type RopeConfig } from "../llama/rope.ts";

export interface XdRotaryConfig {
  readonly rope: RopeConfig;
  readonly headDim: number;
  /**
   * For each axis of a position, half of the dimensions that it belongs to, in their order; their sum is half of
   * `headDim`. The last three axes are an input of the graph: column, row and number of an image. Those before them are
   * positions in the sequence.
   */
  readonly sections: readonly number[];
  readonly maxModelLen: number;
}

/** Axes of the graph's input `positions`. */
const NUM_IMAGE_AXES = 3;

/** Equals `apply_rotary_pos_emb` of transformers' HunYuanVL. */
export function createXdRotary(context: GraphContext, inputs: DecoderInputs, config: XdRotaryConfig): RotateHeads {
  const { graph } = context;
  const { headDim } = config;
  const half = headDim / 2;
  const { cos, sin } = ropeTables(config.rope, headDim, config.maxModelLen);
  const axes = axisPositions(context, inputs, config.sections.length);
  const cosines = tokenRows(context, "rope.cos", { config, axes, valueOf: (row, pair) => cos[row * half + pair]! });
  // The first dimension of a pair is multiplied by the negative sine of the second.
  const sines = tokenRows(context, "rope.sin", {
    config,
    axes,
    valueOf: (row, pair, isFirst) => (isFirst ? -1 : 1) * sin[row * half + pair]!,
  });
  return (name, rows, numHeads) => {
    const heads = reshapeTo(graph, `${name}.unrotated`, rows, [tokens, numHeads, headDim]);
    const [first, second] = split(graph, `${name}.halves`, heads, { axis: 2, sizes: [half, half] });
    const swapped = concat(graph, `${name}.swapped`, [second, first], 2);
    const rotated = add(
      graph,
      `${name}.rotated`,
      multiply(graph, `${name}.by_cosines`, heads, cosines),
      multiply(graph, `${name}.by_sines`, swapped, sines),
    );
    return reshapeTo(graph, `${name}.rotated.flat`, rotated, [tokens, numHeads * headDim]);
  };
}

/** int64 [N] for each axis. */
function axisPositions({ graph }: GraphContext, inputs: DecoderInputs, numAxes: number): readonly Value[] {
  const ofImages = graph.input("positions", "int64", [NUM_IMAGE_AXES, tokens]);
  const numOwn = numAxes - NUM_IMAGE_AXES;
  const own = numOwn === 0 ? [] : [inputs.positions()];
  const imageAxes = Array.from({ length: NUM_IMAGE_AXES }, (_, axis) => {
    const row = slice(graph, `positions.${axis}.row`, ofImages, { axis: 0, start: axis, end: axis + 1 });
    return reshapeTo(graph, `positions.${axis}`, row, [tokens]);
  });
  return [...Array.from({ length: numOwn }, () => own[0]!), ...imageAxes];
}

/** [N, 1, headDim]: for each token and dimension, the value of the position that the dimension belongs to. */
function tokenRows(
  { graph, precision }: GraphContext,
  name: string,
  {
    config: { headDim, sections, maxModelLen },
    axes,
    valueOf,
  }: {
    readonly config: XdRotaryConfig;
    readonly axes: readonly Value[];
    valueOf(this: void, row: number, pair: number, isFirst: boolean): number;
  },
): Value {
  const half = headDim / 2;
  let firstDimension = 0;
  const parts = sections.flatMap((section, axis) => {
    const width = 2 * section;
    const start = firstDimension;
    firstDimension += width;
    if (width === 0) return [];
    const values = new Float32Array(maxModelLen * width).map((_, place) => {
      const dimension = start + (place % width);
      return valueOf(Math.floor(place / width), dimension % half, dimension < half);
    });
    const table = graph.constant(`${name}.${axis}`, precision.activations, [maxModelLen, width], values);
    return [gatherRows(graph, `${name}.${axis}.own`, table, axes[axis]!)];
  });
  const joined = parts.length === 1 ? parts[0]! : concat(graph, `${name}.joined`, parts, 1);
  return reshapeTo(graph, `${name}.of_tokens`, joined, [tokens, 1, headDim]);
}
