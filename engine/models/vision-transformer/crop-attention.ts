/** Attention within the whole picture and within each of its slices or tiles, but not between them. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { sliceBetween } from "../../graph/selection-ops.ts";
import { int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { concat, reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { VisionConfig } from "./config.ts";
import type { Attend } from "./encoder-layers.ts";

const BEYOND_ANY = 2 ** 31;

/** Crops of one size whose rows follow each other. */
export interface EqualCrops {
  /** Part of values' names. */
  readonly name: string;
  /** Names of the number of rows of all of them, of their number, and of the number of rows of each. */
  readonly rows: string;
  readonly count: string | number;
  readonly rowsOfEach: string;
  /** int64 [3]: their number, the rows of each, and `hiddenSize`; one of the first two may be -1. */
  readonly shape: Value;
}

/**
 * The first `count` (int64 [1]) of the rows [rows, width]. `size` is the name of their number.
 */
export function firstRows(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { count, size }: { readonly count: Value; readonly size: string },
): Value {
  const width = Number(rows.shape[1]);
  const ends = concat(graph, `${name}.end`, [count, int64Vector(graph, width)], 0);
  return sliceBetween(graph, name, rows, { starts: int64Vector(graph, 0, 0), ends, shape: [size, width] });
}

/**
 * Kernels of the CPU compute an empty batch, others are not known to. So there is at least one crop of each kind; where a
 * picture has none, a square of patches stands for it.
 *
 * @param of `rows`: the name of the number of rows of all crops; `numBefore`, int64 [1]: those of the first crops. The
 * second ones have the rest.
 */
export function attendWithinCrops(
  { graph }: GraphContext,
  { hiddenSize, numHeads }: Pick<VisionConfig, "hiddenSize" | "numHeads">,
  {
    rows,
    numBefore,
    crops: [first, second],
  }: {
    readonly rows: string;
    readonly numBefore: Value;
    readonly crops: readonly [first: EqualCrops, second: EqualCrops];
  },
): Attend {
  const start = int64Vector(graph, 0, 0);
  const endOfFirst = concat(graph, `${rows}.first.end`, [numBefore, int64Vector(graph, hiddenSize)], 0);
  const startOfSecond = concat(graph, `${rows}.second.start`, [numBefore, int64Vector(graph, 0)], 0);
  const end = int64Vector(graph, BEYOND_ANY, hiddenSize);

  return (name, { query, key, value }) => {
    const attended = (of: EqualCrops, starts: Value, ends: Value): Value => {
      const crops = (which: string, all: Value): Value => {
        const part = `${name}.${which}.${of.name}`;
        const cut = sliceBetween(graph, part, all, { starts, ends, shape: [of.rows, hiddenSize] });
        return reshape(graph, `${part}.crops`, cut, of.shape, [of.count, of.rowsOfEach, hiddenSize]);
      };
      const parts = { query: crops("q", query), key: crops("k", key), value: crops("v", value) };
      const joint = multiHeadAttention(graph, `${name}.${of.name}`, { ...parts, numHeads });
      return reshapeTo(graph, `${name}.${of.name}.flat`, joint, [of.rows, hiddenSize]);
    };
    const both = [attended(first, start, endOfFirst), attended(second, startOfSecond, end)];
    return concat(graph, `${name}.crops`, both, 0, rows);
  };
}
