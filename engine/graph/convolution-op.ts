/** Convolutions over the places of a plane. */
import type { AttributeValue, GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize } from "./node-checks.ts";
import { addStandardNode } from "./standard-ops.ts";
import type { Value } from "./value.ts";

/**
 * A convolution of each channel alone, with a border of zeros, so that the plane keeps its size.
 *
 * @param plane float [batch, channels, height, width].
 * @param kernel float [channels, 1, side, side] with an odd side.
 * @returns Like `plane`.
 */
export function depthwiseConvolution(graph: GraphBuilder, name: string, plane: Value, kernel: Value): Value {
  const node = { name, operator: "Conv" };
  checkElementType(node, plane, ...floats);
  checkElementType(node, kernel, plane.elementType);
  checkRank(node, plane, 4);
  checkRank(node, kernel, 4);
  const channels = knownSize(node, plane, 1);
  const side = knownSize(node, kernel, 2);
  checkShape(node, kernel, [channels, 1, side, side]);
  const border = (side - 1) / 2;
  return addStandardNode(graph, node, [plane, kernel], plane, {
    group: { kind: "int", value: channels },
    kernel_shape: ints(side, side),
    pads: ints(border, border, border, border),
  });
}

function ints(...value: readonly number[]): AttributeValue {
  return { kind: "ints", value };
}
