/** Learned positions of a square table, resized to the rows and columns of a picture's patches. */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { maximum } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, divide, gatherRows, multiply, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { patches, type PatchRotary } from "./patch-rotary.ts";

export interface PositionTable {
  /** Name of its tensor in the checkpoint, [numOthers + side^2, embedDim]. */
  readonly name: string;
  /** Rows before the table, such as that of a class token. Default 0. */
  readonly numOthers?: number;
  readonly side: number;
  readonly embedDim: number;
  /**
   * Whether the corner patches get the corners of the table (`align_corners`). Otherwise the centres of patches are
   * compared with those of the table's cells, and its border continues outside of it.
   */
  readonly alignsCorners: boolean;
}

interface Neighbours {
  /** int64 [numPatches]: lines of the table before and behind the patch. */
  readonly lines: readonly [before: Value, behind: Value];
  /** float32 [numPatches] each: their shares, which sum to 1. */
  readonly shares: readonly [before: Value, behind: Value];
}

/** Where the patches of a picture are. */
export interface PatchPlaces extends Pick<PatchRotary, "row" | "column"> {
  /** int64 [1, 3]: 1, rows and columns of patches. */
  readonly grid: Value;
}

/** Bilinear interpolation: [numPatches, embedDim]. */
export function resizedPositions(
  context: GraphContext,
  { name: tableName, side: positionsPerSide, embedDim, alignsCorners, numOthers = 0 }: PositionTable,
  { grid, row, column }: PatchPlaces,
): Value {
  const { graph, precision } = context;
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const flatGrid = reshapeTo(graph, "positions.grid", grid, [3]);
  const side = scalar(positionsPerSide);
  const neighbours = (name: string, position: Value, size: Value): Neighbours => {
    // In integers, so that every patch finds its lines exactly.
    const { scaled, steps } = alignsCorners
      ? cornerPlaces(graph, name, { position, size, side: positionsPerSide })
      : centrePlaces(graph, name, { position, size, side: positionsPerSide });
    const before = divide(graph, `${name}.before`, scaled, steps);
    const rest = subtract(graph, `${name}.rest`, scaled, multiply(graph, `${name}.whole`, before, steps));
    const share = divide(
      graph,
      `${name}.share`,
      cast(graph, `${name}.rest.float`, rest, "float32"),
      cast(graph, `${name}.steps.float`, steps, "float32"),
    );
    const one = graph.constant("float32.one", "float32", [], [1]);
    // The last line has nothing behind it and all of the share.
    const isBefore = add(graph, `${name}.next`, before, scalar(1));
    const last = scalar(positionsPerSide - 1);
    const beyond = maximum(graph, `${name}.beyond`, subtract(graph, `${name}.over`, isBefore, last), scalar(0));
    return {
      lines: [before, subtract(graph, `${name}.behind`, isBefore, beyond)],
      shares: [subtract(graph, `${name}.share.before`, one, share), share],
    };
  };
  const rows = neighbours("positions.row", row, gatherRows(graph, "positions.rows", flatGrid, scalar(1)));
  const columns = neighbours("positions.column", column, gatherRows(graph, "positions.columns", flatGrid, scalar(2)));
  const table = parameter(context, tableName, [numOthers + positionsPerSide ** 2, embedDim]);
  const parts = [0, 1].flatMap((row) =>
    [0, 1].map((column) => {
      const name = `positions.corner.${row}.${column}`;
      const firstOfLine = multiply(graph, `${name}.line`, rows.lines[row]!, side);
      const place = add(graph, `${name}.place`, firstOfLine, columns.lines[column]!);
      const index = numOthers === 0 ? place : add(graph, `${name}.index`, place, scalar(numOthers));
      const share = multiply(graph, `${name}.share`, rows.shares[row]!, columns.shares[column]!);
      const asColumn = reshapeTo(graph, `${name}.column`, share, [patches, 1]);
      const values = gatherRows(graph, `${name}.values`, table, index);
      return multiply(graph, name, values, cast(graph, `${name}.cast`, asColumn, precision.activations));
    }),
  );
  return parts.reduce((sum, part, index) => add(graph, `positions.sum.${index}`, sum, part));
}

/** Of each patch: its place among the table's lines, `scaled / steps`. */
interface Places {
  readonly scaled: Value;
  readonly steps: Value;
}

interface PatchAxis {
  /** int64 [numPatches]: row or column of each patch. */
  readonly position: Value;
  /** int64 []: their number in the picture. */
  readonly size: Value;
  readonly side: number;
}

/** position * (side - 1) / (size - 1). */
function cornerPlaces(graph: GraphBuilder, name: string, { position, size, side }: PatchAxis): Places {
  const scalar = (value: number): Value => int64Scalar(graph, value);
  return {
    scaled: multiply(graph, `${name}.scaled`, position, scalar(side - 1)),
    steps: maximum(graph, `${name}.steps`, subtract(graph, `${name}.last`, size, scalar(1)), scalar(1)),
  };
}

/** (position + 1/2) * side / size - 1/2, but at least 0. */
function centrePlaces(graph: GraphBuilder, name: string, { position, size, side }: PatchAxis): Places {
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const twice = multiply(graph, `${name}.twice`, position, scalar(2));
  const centre = multiply(graph, `${name}.centre`, add(graph, `${name}.odd`, twice, scalar(1)), scalar(side));
  return {
    scaled: maximum(graph, `${name}.scaled`, subtract(graph, `${name}.from_first`, centre, size), scalar(0)),
    steps: multiply(graph, `${name}.steps`, size, scalar(2)),
  };
}
