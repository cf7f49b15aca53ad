/** Windows of a picture: squares of squares of patches, between which there is no attention. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  cast,
  divide,
  gatherRows,
  modulo,
  multiply,
  range,
  reshape,
  shapeOf,
  subtract,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { PatchWindows } from "../patches/patch-attention.ts";
import { patches } from "../patches/patch-rotary.ts";

/** Added to the scores of a window's places without a patch. A multiple of it still fits into float16. */
const ABSENT_SCORE = -10_000;

const windows = "numWindows";
const places = "numPlaces";

/**
 * A picture's last windows in each direction can be smaller. Here every window has all its places: those without a patch
 * repeat another one, nothing attends to them, and their results are dropped.
 *
 * @param windowSide In squares.
 * @param mergeSize Side of a square, in patches.
 */
export function createWindows(
  { graph, precision }: GraphContext,
  { windowSide, mergeSize }: { readonly windowSide: number; readonly mergeSize: number },
  pixels: Value,
  grid: Value,
): PatchWindows {
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const named = (name: string): string => `window.${name}`;
  const plus = (name: string, left: Value, right: Value): Value => add(graph, named(name), left, right);
  const times = (name: string, left: Value, right: Value): Value => multiply(graph, named(name), left, right);
  const over = (name: string, left: Value, right: Value): Value => divide(graph, named(name), left, right);
  const rest = (name: string, left: Value, right: Value): Value => modulo(graph, named(name), left, right);

  const patchesPerSquare = scalar(mergeSize ** 2);
  const side = scalar(windowSide);
  const patchesPerWindow = (windowSide * mergeSize) ** 2;
  const numPlacesOfOne = scalar(patchesPerWindow);

  const flatGrid = reshapeTo(graph, named("grid"), grid, [3]);
  const squaresOf = (name: string, axis: number): Value =>
    over(`${name}.squares`, gatherRows(graph, named(`${name}.patches`), flatGrid, scalar(axis)), scalar(mergeSize));
  const windowsOf = (name: string, squares: Value): Value =>
    over(`${name}.windows`, plus(`${name}.rounded`, squares, scalar(windowSide - 1)), side);
  const numRows = squaresOf("rows", 1);
  const numColumns = squaresOf("columns", 2);
  const windowsPerRow = windowsOf("columns", numColumns);
  const numWindows = times("count", windowsOf("rows", numRows), windowsPerRow);
  const numPatches = gatherRows(graph, named("patches"), shapeOf(graph, named("pixels"), pixels, 1), scalar(0));

  // From places to patches: window by window, its squares row by row, the patches of each.
  const place = range(graph, named("place"), times("places", numWindows, numPlacesOfOne), places);
  const window = over("place.window", place, numPlacesOfOne);
  const within = rest("place.within", place, numPlacesOfOne);
  const square = over("place.square", within, patchesPerSquare);
  const rowOfPlace = plus(
    "place.row",
    times("place.row.first", over("place.row.window", window, windowsPerRow), side),
    over("place.row.within", square, side),
  );
  const columnOfPlace = plus(
    "place.column",
    times("place.column.first", rest("place.column.window", window, windowsPerRow), side),
    rest("place.column.within", square, side),
  );
  const squareOfPlace = plus("place.square.index", times("place.square.row", rowOfPlace, numColumns), columnOfPlace);
  const patchOfPlace = rest(
    "place.patch",
    plus(
      "place.patch.unbounded",
      times("place.patch.first", squareOfPlace, patchesPerSquare),
      rest("place.patch.within", within, patchesPerSquare),
    ),
    numPatches,
  );
  // Above 0 outside of the picture.
  const outside = plus(
    "place.outside",
    over("place.outside.rows", rowOfPlace, numRows),
    over("place.outside.columns", columnOfPlace, numColumns),
  );

  // From patches to places.
  const patch = range(graph, named("patch"), numPatches, patches);
  const ownSquare = over("patch.square", patch, patchesPerSquare);
  const row = over("patch.row", ownSquare, numColumns);
  const column = rest("patch.column", ownSquare, numColumns);
  const ownWindow = plus(
    "patch.window",
    times("patch.window.row", over("patch.row.window", row, side), windowsPerRow),
    over("patch.column.window", column, side),
  );
  const squareWithin = plus(
    "patch.square.within",
    times("patch.row.within.first", rest("patch.row.within", row, side), side),
    rest("patch.column.within", column, side),
  );
  const placeOfPatch = plus(
    "patch.place",
    times("patch.place.window", ownWindow, numPlacesOfOne),
    plus(
      "patch.place.within",
      times("patch.place.square", squareWithin, patchesPerSquare),
      rest("patch.within", patch, patchesPerSquare),
    ),
  );

  const scores = multiply(
    graph,
    named("scores"),
    cast(graph, named("outside.float"), outside, precision.activations),
    cast(
      graph,
      named("absent"),
      graph.constant("window.absent.float", "float32", [1], Float32Array.of(ABSENT_SCORE)),
      precision.activations,
    ),
  );
  const keyScores = reshapeTo(graph, named("key_scores"), scores, [windows, 1, 1, patchesPerWindow]);
  // The same for every query: the operator wants all of them.
  const queryScores = reshapeTo(graph, named("query_scores"), scores, [windows, 1, patchesPerWindow, 1]);
  const none = subtract(graph, named("no_scores"), queryScores, queryScores);
  const bias = add(graph, named("bias"), none, keyScores);

  return {
    attend(name, projected, { numHeads, embedDim }) {
      const flatShape = graph.constant("window.flat_shape", "int64", [2], [-1, embedDim]);
      const windowShape = graph.constant("window.shape", "int64", [3], [-1, patchesPerWindow, embedDim]);
      const divided = (part: string, value: Value): Value => {
        const flat = reshape(graph, `${name}.${part}.flat`, value, flatShape, [patches, embedDim]);
        const ordered = gatherRows(graph, `${name}.${part}.ordered`, flat, patchOfPlace);
        const shape = [windows, patchesPerWindow, embedDim];
        return reshape(graph, `${name}.${part}.windows`, ordered, windowShape, shape);
      };
      const attended = multiHeadAttention(graph, name, {
        query: divided("query", projected.query),
        key: divided("key", projected.key),
        value: divided("value", projected.value),
        numHeads,
        bias,
      });
      const flat = reshape(graph, `${name}.places`, attended, flatShape, [places, embedDim]);
      const ordered = gatherRows(graph, `${name}.patches`, flat, placeOfPatch);
      return reshapeTo(graph, `${name}.picture`, ordered, [1, patches, embedDim]);
    },
  };
}
