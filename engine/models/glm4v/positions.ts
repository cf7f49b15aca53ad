/** Learned positions of a square table, resized to the rows and columns of a picture's patches. */
import { gridSample } from "../../graph/grid-sample-op.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, divide, gatherRows, multiply, subtract, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { patches, type PatchRotary } from "../patches/patch-rotary.ts";

/**
 * Bicubic interpolation by the centres of patches; outside of the table, its border continues.
 *
 * @param grid int64 [1, 3]: 1, rows and columns of patches.
 * @returns [numPatches, embedDim].
 */
export function bicubicPositions(
  context: GraphContext,
  { positionsPerSide: side, embedDim }: { readonly positionsPerSide: number; readonly embedDim: number },
  prefix: string,
  { grid, rotary }: { readonly grid: Value; readonly rotary: PatchRotary },
): Value {
  const { graph, precision } = context;
  const scalar = (value: number): Value => graph.constant(`float32.scalar.${value}`, "float32", [], [value]);
  const flatGrid = reshapeTo(graph, "positions.grid", grid, [3]);
  /** From -1 to 1 over the whole table. */
  const coordinate = (name: string, position: Value, axis: number): Value => {
    const size = cast(
      graph,
      `${name}.size`,
      gatherRows(graph, `${name}.count`, flatGrid, int64Scalar(graph, axis)),
      "float32",
    );
    const centre = add(graph, `${name}.centre`, cast(graph, `${name}.float`, position, "float32"), scalar(0.5));
    const share = divide(graph, `${name}.share`, centre, size);
    const scaled = subtract(graph, `${name}.scaled`, multiply(graph, `${name}.twice`, share, scalar(2)), scalar(1));
    return reshapeTo(graph, `${name}.column`, scaled, [patches, 1]);
  };
  const places = concat(
    graph,
    "positions.places",
    [coordinate("positions.x", rotary.column, 2), coordinate("positions.y", rotary.row, 1)],
    1,
  );
  const sampledAt = reshapeTo(graph, "positions.sampled_at", places, [1, patches, 1, 2]);

  const name = `${prefix}embeddings.position_embedding.weight`;
  const table = cast(graph, "positions.table", parameter(context, name, [side ** 2, embedDim]), "float32");
  const byFeature = transpose(graph, "positions.by_feature", table, [1, 0]);
  const plane = reshapeTo(graph, "positions.plane", byFeature, [1, embedDim, side, side]);
  const sampled = gridSample(graph, "positions.sampled", plane, sampledAt);
  const rows = reshapeTo(graph, "positions.flat", sampled, [embedDim, patches]);
  return cast(graph, "positions", transpose(graph, "positions.rows", rows, [1, 0]), precision.activations);
}
