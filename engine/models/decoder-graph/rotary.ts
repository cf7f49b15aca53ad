/** Tables of rotary position embeddings as constants of a decoder's graph. */
import { add, concat, gatherRows, multiply, reshape, slice, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { ropeTables, type RopeConfig } from "../llama/rope.ts";
import type { Rotary } from "./decoder-inputs.ts";
import { tokens } from "./sizes.ts";

export interface RotaryOptions {
  /** Prefix of the tables' names, for graphs with several. Default: `rope`. */
  readonly name?: string;
  readonly rope: RopeConfig;
  /** Dimensions of a head that are rotated, from its start. */
  readonly rotaryDim: number;
  /** Length of the tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
  /** Factor of cosines and sines, and therefore of rotated queries and keys. */
  readonly factor: number;
  /**
   * How many of a head's frequencies rotate with each of a token's three positions, which are then an input of the
   * graph. If left out, a token has one position.
   */
  readonly sections?: readonly [number, number, number];
  /** Whether the three positions take turns among the frequencies. Default: each has a run of frequencies. */
  readonly interleavesSections?: boolean;
}

export function createRotary(context: GraphContext, options: RotaryOptions): Rotary {
  const { graph, precision } = context;
  const {
    rope,
    rotaryDim,
    maxModelLen,
    factor,
    sections,
    interleavesSections = false,
    name: prefix = "rope",
  } = options;
  const { cos, sin } = ropeTables(rope, rotaryDim, maxModelLen);
  const table = (name: string, values: Float32Array): Value => {
    const scaled = values.map((value) => value * factor);
    return graph.constant(name, precision.activations, [maxModelLen, rotaryDim / 2], scaled);
  };
  const cosCache = table(`${prefix}.cos`, cos);
  const sinCache = table(`${prefix}.sin`, sin);
  if (sections === undefined) return { tables: { cosCache, sinCache }, rowOf: "position" };
  const positions = graph.input("positions", "int64", [3, tokens]);
  const axes = interleavesSections ? interleavedAxes(sections, rotaryDim / 2) : null;
  const sectioned = { positions, sections, axes };
  return {
    tables: {
      cosCache: sectionedRows(context, "rope.cos.own", cosCache, sectioned),
      sinCache: sectionedRows(context, "rope.sin.own", sinCache, sectioned),
    },
    rowOf: "token",
  };
}

/** [N, half]: a row for every token of the run, composed of those of its three positions. */
function sectionedRows(
  context: GraphContext,
  name: string,
  table: Value,
  {
    positions,
    sections,
    axes,
  }: { readonly positions: Value; readonly sections: readonly number[]; readonly axes: readonly number[] | null },
): Value {
  const { graph } = context;
  const rows = gatherRows(graph, `${name}.rows`, table, positions);
  if (axes !== null) return interleavedRows(context, name, rows, axes);
  const pieces = split(graph, `${name}.pieces`, rows, { axis: 2, sizes: sections }).map((piece, axis) =>
    slice(graph, `${name}.axis.${axis}`, piece, { axis: 0, start: axis, end: axis + 1 }),
  );
  const [, half] = table.shape;
  const flatShape = graph.constant("rope.flat_shape", "int64", [2], [-1, Number(half)]);
  return reshape(graph, name, concat(graph, `${name}.joined`, pieces, 2), flatShape, [tokens, half!]);
}

/**
 * The axis of each frequency: temporal, height, width and so on in turn, as long as height and width have frequencies
 * left, then temporal.
 */
function interleavedAxes(sections: readonly [number, number, number], half: number): readonly number[] {
  return Array.from({ length: half }, (_, frequency) => {
    const axis = frequency % 3;
    return frequency < 3 * sections[axis]! ? axis : 0;
  });
}

/** The rows [3, N, half] of the three positions, each where its frequencies are: [N, half]. */
function interleavedRows(
  { graph, precision }: GraphContext,
  name: string,
  rows: Value,
  axes: readonly number[],
): Value {
  const half = axes.length;
  const parts = [0, 1, 2].map((axis) => {
    const own = axes.map((other) => Number(other === axis));
    const mask = graph.constant(`rope.axis.${axis}`, precision.activations, [1, 1, half], own);
    const part = slice(graph, `${name}.axis.${axis}`, rows, { axis: 0, start: axis, end: axis + 1 });
    return multiply(graph, `${name}.own.${axis}`, part, mask);
  }) as [Value, Value, Value];
  const joined = add(graph, `${name}.joined`, add(graph, `${name}.first_two`, parts[0], parts[1]), parts[2]);
  const flatShape = graph.constant("rope.flat_shape", "int64", [2], [-1, half]);
  return reshape(graph, name, joined, flatShape, [tokens, half]);
}
