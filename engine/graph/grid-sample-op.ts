/** Values of a plane between its points. */
import type { GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, nodeError } from "./node-checks.ts";
import { addStandardNode } from "./standard-ops.ts";
import type { Value } from "./value.ts";

/** The version in which the mode is called `cubic`. */
const GRID_SAMPLE_OPSET = 20;

/**
 * Bicubic interpolation like PyTorch's `grid_sample` with `align_corners=False` and the padding mode `border`.
 *
 * @param plane float32 [batch, channels, height, width].
 * @param places float32 [batch, rows, columns, 2]: x and y from -1 to 1, the outer edges of the plane.
 * @returns float32 [batch, channels, rows, columns].
 */
export function gridSample(graph: GraphBuilder, name: string, plane: Value, places: Value): Value {
  const node = { name, operator: "GridSample", opset: GRID_SAMPLE_OPSET };
  checkElementType(node, plane, "float32");
  checkElementType(node, places, "float32");
  checkRank(node, plane, 4);
  checkRank(node, places, 4);
  const [batch, channels] = plane.shape;
  const [placesBatch, rows, columns, axes] = places.shape;
  if (placesBatch !== batch || axes !== 2)
    throw nodeError(node, "places should have two coordinates for each picture.");
  const result = { elementType: plane.elementType, shape: [batch!, channels!, rows!, columns!] };
  const attributes = {
    mode: text("cubic"),
    padding_mode: text("border"),
    align_corners: { kind: "int", value: 0 },
  } as const;
  return addStandardNode(graph, node, [plane, places], result, attributes);
}

function text(value: string) {
  return { kind: "string", value } as const;
}
