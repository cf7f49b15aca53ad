/** Checks that operator functions make before they add a node. Every error names the node. */
import { EngineError } from "../contract/errors.ts";
import type { ElementType } from "../weights/stored-tensor.ts";
import { describeShape, describeValue, sameShape, type Shape, type Value } from "./value.ts";

/** The node being checked. */
export interface NodeLabel {
  readonly name: string;
  readonly operator: string;
}

/** Types in which operators compute activations. `precision.ts` selects those for which a device has kernels. */
export const floats = ["float32", "float16", "bfloat16"] as const satisfies readonly ElementType[];

export function nodeError(node: NodeLabel, problem: string): EngineError {
  return new EngineError("internal", `Node ${node.name} (${node.operator}): ${problem}`);
}

export function checkElementType(node: NodeLabel, value: Value, ...allowed: readonly ElementType[]): void {
  if (!allowed.includes(value.elementType)) {
    throw nodeError(node, `${describeValue(value)} should be ${allowed.join(" or ")}.`);
  }
}

export function checkRank(node: NodeLabel, value: Value, rank: number): void {
  if (value.shape.length !== rank) {
    throw nodeError(node, `${describeValue(value)} should have ${rank} dimensions, not ${value.shape.length}.`);
  }
}

export function checkShape(node: NodeLabel, value: Value, expected: Shape): void {
  if (!sameShape(value.shape, expected)) {
    throw nodeError(node, `${describeValue(value)} should have shape ${describeShape(expected)}.`);
  }
}

/** The dimension as a number, for operators that must know it while building. */
export function knownSize(node: NodeLabel, value: Value, axis: number): number {
  const size = value.shape.at(axis);
  if (typeof size !== "number")
    throw nodeError(node, `axis ${axis} of ${describeValue(value)} should have a known size.`);
  return size;
}
