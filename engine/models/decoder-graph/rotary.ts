/** Tables of rotary position embeddings as constants of a decoder's graph. */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { concat, gatherRows, reshape, slice, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { ropeTables, type RopeConfig } from "../llama/rope.ts";
import type { Rotary } from "./decoder-inputs.ts";
import { tokens } from "./sizes.ts";

export interface RotaryOptions {
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
}

export function createRotary({ graph, precision }: GraphContext, options: RotaryOptions): Rotary {
  const { rope, rotaryDim, maxModelLen, factor, sections } = options;
  const { cos, sin } = ropeTables(rope, rotaryDim, maxModelLen);
  const table = (name: string, values: Float32Array): Value => {
    const scaled = values.map((value) => value * factor);
    return graph.constant(name, precision.activations, [maxModelLen, rotaryDim / 2], scaled);
  };
  const cosCache = table("rope.cos", cos);
  const sinCache = table("rope.sin", sin);
  if (sections === undefined) return { tables: { cosCache, sinCache }, rowOf: "position" };
  const positions = graph.input("positions", "int64", [3, tokens]);
  const sectioned = { positions, sections };
  return {
    tables: {
      cosCache: sectionedRows(graph, "rope.cos.own", cosCache, sectioned),
      sinCache: sectionedRows(graph, "rope.sin.own", sinCache, sectioned),
    },
    rowOf: "token",
  };
}

/** [N, half]: a row for every token of the run, composed of those of its three positions. */
function sectionedRows(
  graph: GraphBuilder,
  name: string,
  table: Value,
  { positions, sections }: { readonly positions: Value; readonly sections: readonly number[] },
): Value {
  const rows = gatherRows(graph, `${name}.rows`, table, positions);
  const pieces = split(graph, `${name}.pieces`, rows, { axis: 2, sizes: sections }).map((piece, axis) =>
    slice(graph, `${name}.axis.${axis}`, piece, { axis: 0, start: axis, end: axis + 1 }),
  );
  const [, half] = table.shape;
  const flatShape = graph.constant("rope.flat_shape", "int64", [2], [-1, Number(half)]);
  return reshape(graph, name, concat(graph, `${name}.joined`, pieces, 2), flatShape, [tokens, half!]);
}
