/** Operators of the ONNX standard (https://onnx.ai/onnx/operators) that the models use. */
import type { ElementType } from "../weights/stored-tensor.ts";
import {
  mlDomain,
  standardDomain,
  type AttributeValue,
  type GraphBuilder,
  type ValuePerElement,
} from "./graph-builder.ts";
import {
  checkElementType,
  checkRank,
  checkShape,
  floats,
  knownSize,
  nodeError,
  type NodeLabel,
} from "./node-checks.ts";
import { onnxDataTypes } from "./onnx-schema.ts";
import {
  broadcastShapes,
  describeShape,
  describeValue,
  sameShape,
  withLastSize,
  type Dimension,
  type Shape,
  type Value,
} from "./value.ts";

interface Result {
  readonly elementType: ElementType;
  readonly shape: Shape;
}

/** Adds a standard node with one output, which has the node's name. */
export function addStandardNode(
  graph: GraphBuilder,
  node: NodeLabel,
  inputs: readonly (Value | null)[],
  result: Result,
  attributes: Readonly<Record<string, AttributeValue>> = {},
): Value {
  const outputs = [{ name: node.name, elementType: result.elementType, shape: result.shape }];
  return graph.addNode({ ...node, domain: standardDomain, inputs, attributes, outputs })[0]!;
}

/** `input [M, K] x weight [N, K] transposed + bias [N]`: a linear layer over Hugging Face's weight layout. */
export function gemm(graph: GraphBuilder, name: string, input: Value, weight: Value, bias: Value | null): Value {
  const node = { name, operator: "Gemm" };
  checkElementType(node, input, ...floats);
  checkElementType(node, weight, input.elementType);
  checkRank(node, input, 2);
  checkRank(node, weight, 2);
  checkShape(node, weight, [weight.shape[0]!, input.shape[1]!]);
  if (bias !== null) {
    checkElementType(node, bias, input.elementType);
    checkShape(node, bias, [weight.shape[0]!]);
  }
  const shape = [input.shape[0]!, weight.shape[0]!];
  const inputs = bias === null ? [input, weight] : [input, weight, bias];
  return addStandardNode(graph, node, inputs, { elementType: input.elementType, shape }, { transB: int(1) });
}

/** `left [M, K] x right [K, N] + sum [M, N]`. K may be 0 at run time. */
export function addProduct(
  graph: GraphBuilder,
  name: string,
  { left, right, sum }: { readonly left: Value; readonly right: Value; readonly sum: Value },
): Value {
  const node = { name, operator: "Gemm" };
  checkElementType(node, left, ...floats);
  checkElementType(node, right, left.elementType);
  checkElementType(node, sum, left.elementType);
  checkShape(node, right, [left.shape[1]!, right.shape[1]!]);
  const shape = [left.shape[0]!, right.shape[1]!];
  checkShape(node, sum, shape);
  return addStandardNode(graph, node, [left, right, sum], { elementType: left.elementType, shape });
}

/** Products of matrices `[..., M, K] x [..., K, N]`; the axes before them are broadcast. */
export function matMul(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  const node = { name, operator: "MatMul" };
  checkElementType(node, left, ...floats);
  checkElementType(node, right, left.elementType);
  if (right.shape.at(-2) !== left.shape.at(-1)) {
    throw nodeError(node, `${describeValue(left)} and ${describeValue(right)} share no axis to sum over.`);
  }
  const outer = broadcastShapes(left.shape.slice(0, -2), right.shape.slice(0, -2));
  if (outer === null) throw nodeError(node, `${describeValue(left)} and ${describeValue(right)} do not broadcast.`);
  const shape = [...outer, left.shape.at(-2)!, right.shape.at(-1)!];
  return addStandardNode(graph, node, [left, right], { elementType: left.elementType, shape });
}

export function add(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return broadcastingNode(graph, { name, operator: "Add" }, left, right);
}

export function multiply(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return broadcastingNode(graph, { name, operator: "Mul" }, left, right);
}

export function subtract(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return broadcastingNode(graph, { name, operator: "Sub" }, left, right);
}

/** Of integers, the quotient rounded towards zero. */
export function divide(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return broadcastingNode(graph, { name, operator: "Div" }, left, right);
}

/** Remainder with the sign of `right`. */
export function modulo(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return broadcastingNode(graph, { name, operator: "Mod" }, left, right);
}

function broadcastingNode(graph: GraphBuilder, node: NodeLabel, left: Value, right: Value): Value {
  checkElementType(node, right, left.elementType);
  const shape = broadcastShapes(left.shape, right.shape);
  if (shape === null) throw nodeError(node, `${describeValue(left)} and ${describeValue(right)} do not broadcast.`);
  return addStandardNode(graph, node, [left, right], { elementType: left.elementType, shape });
}

/** Rows of `data` along axis 0: `[...indices.shape, ...data.shape[1:]]`. */
export function gatherRows(graph: GraphBuilder, name: string, data: Value, indices: Value): Value {
  const node = { name, operator: "Gather" };
  checkElementType(node, indices, "int32", "int64");
  const shape = [...indices.shape, ...data.shape.slice(1)];
  return addStandardNode(graph, node, [data, indices], { elementType: data.elementType, shape }, { axis: int(0) });
}

/** `data [N, C, ...]` with its columns in the order of `indices [M]`: `[N, M, ...]`. */
export function gatherColumns(graph: GraphBuilder, name: string, data: Value, indices: Value): Value {
  const node = { name, operator: "Gather" };
  checkElementType(node, indices, "int32", "int64");
  checkRank(node, indices, 1);
  const shape = data.shape.with(1, indices.shape[0]!);
  return addStandardNode(graph, node, [data, indices], { elementType: data.elementType, shape }, { axis: int(1) });
}

/**
 * The same for `data` float32 [N, K] on the CPU, in three to five times less time than `Gather`, which calls a function
 * for each element.
 */
export function extractColumns(graph: GraphBuilder, name: string, data: Value, indices: Value): Value {
  const node = { name, operator: "ArrayFeatureExtractor" };
  checkElementType(node, data, "float32");
  checkElementType(node, indices, "int64");
  checkRank(node, data, 2);
  const outputs = [{ name, elementType: data.elementType, shape: [data.shape[0]!, indices.shape[0]!] }] as const;
  return graph.addNode({ ...node, domain: mlDomain, inputs: [data, indices], outputs })[0];
}

/** `data [N, ...]` with rows `indices [M, 1]` replaced by `updates [M, ...]`. */
export function scatterRows(graph: GraphBuilder, name: string, data: Value, indices: Value, updates: Value): Value {
  const node = { name, operator: "ScatterND" };
  checkElementType(node, indices, "int64");
  checkElementType(node, updates, data.elementType);
  checkShape(node, indices, [indices.shape[0]!, 1]);
  checkShape(node, updates, [indices.shape[0]!, ...data.shape.slice(1)]);
  return addStandardNode(graph, node, [data, indices, updates], data);
}

/** `target` is the run-time shape tensor (0 copies a dimension, -1 infers one); `shape` is the resulting shape. */
export function reshape(graph: GraphBuilder, name: string, input: Value, target: Value, shape: Shape): Value {
  const node = { name, operator: "Reshape" };
  checkElementType(node, target, "int64");
  checkShape(node, target, [shape.length]);
  const inputSize = knownProduct(input.shape);
  const outputSize = knownProduct(shape);
  if (inputSize !== null && outputSize !== null && inputSize !== outputSize) {
    throw nodeError(node, `${describeValue(input)} does not have the size of ${describeShape(shape)}.`);
  }
  return addStandardNode(graph, node, [input, target], { elementType: input.elementType, shape });
}

/** Null if a dimension is known only at run time. */
function knownProduct(shape: Shape): number | null {
  let product = 1;
  for (const dimension of shape) {
    if (typeof dimension !== "number") return null;
    product *= dimension;
  }
  return product;
}

/** The input's shape, or its first `numAxes` sizes, as int64. */
export function shapeOf(graph: GraphBuilder, name: string, input: Value, numAxes = input.shape.length): Value {
  const node = { name, operator: "Shape" };
  const result: Result = { elementType: "int64", shape: [numAxes] };
  return addStandardNode(graph, node, [input], result, { start: int(0), end: int(numAxes) });
}

export function transpose(graph: GraphBuilder, name: string, input: Value, permutation: readonly number[]): Value {
  const node = { name, operator: "Transpose" };
  if (
    !sameShape(
      permutation.toSorted((left, right) => left - right),
      [...input.shape.keys()],
    )
  ) {
    throw nodeError(node, `[${permutation.join(", ")}] is not a permutation of the axes of ${describeValue(input)}.`);
  }
  const shape = permutation.map((axis) => input.shape[axis]!);
  return addStandardNode(graph, node, [input], { elementType: input.elementType, shape }, { perm: ints(permutation) });
}

/** @param joinedSize Name of the resulting size, if that of an input is not known. */
export function concat(
  graph: GraphBuilder,
  name: string,
  inputs: readonly Value[],
  axis: number,
  joinedSize?: string,
): Value {
  const node = { name, operator: "Concat" };
  const first = inputs[0];
  if (first === undefined) throw nodeError(node, "there is nothing to concatenate.");
  let size = 0;
  for (const input of inputs) {
    checkElementType(node, input, first.elementType);
    checkShape(node, input, first.shape.with(axis, input.shape[axis]!));
    if (joinedSize === undefined) size += knownSize(node, input, axis);
  }
  const shape = first.shape.with(axis, joinedSize ?? size);
  return addStandardNode(graph, node, inputs, { elementType: first.elementType, shape }, { axis: int(axis) });
}

/** Repeats axes of size 1. `target` is the run-time shape tensor, `shape` the resulting shape. */
export function expand(graph: GraphBuilder, name: string, input: Value, target: Value, shape: Shape): Value {
  const node = { name, operator: "Expand" };
  checkElementType(node, target, "int64");
  checkShape(node, target, [shape.length]);
  const broadcast = broadcastShapes(input.shape, shape);
  if (broadcast === null || !sameShape(broadcast, shape)) {
    throw nodeError(node, `${describeValue(input)} does not expand to ${describeShape(shape)}.`);
  }
  return addStandardNode(graph, node, [input, target], { elementType: input.elementType, shape });
}

/** Cuts one axis into pieces of the given sizes. */
export function split<const Sizes extends readonly number[]>(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { axis, sizes }: { readonly axis: number; readonly sizes: Sizes },
): ValuePerElement<Sizes> {
  const node = { name, operator: "Split" };
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (knownSize(node, input, axis) !== total) {
    throw nodeError(node, `axis ${axis} of ${describeValue(input)} should have size ${total}.`);
  }
  const sizesValue = graph.constant(`split.${sizes.join(".")}`, "int64", [sizes.length], sizes);
  const parts = splitAt(graph, name, input, { axis, sizes: sizesValue, dimensions: sizes });
  return parts as ValuePerElement<Sizes>;
}

/** Parts along one axis whose sizes runs choose: `sizes` int64 [dimensions.length]. */
export function splitAt(
  graph: GraphBuilder,
  name: string,
  input: Value,
  {
    axis,
    sizes,
    dimensions,
  }: { readonly axis: number; readonly sizes: Value; readonly dimensions: readonly Dimension[] },
): readonly Value[] {
  const node = { name, operator: "Split" };
  checkElementType(node, sizes, "int64");
  checkShape(node, sizes, [dimensions.length]);
  return graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [input, sizes],
    attributes: { axis: int(axis) },
    outputs: dimensions.map((size, index) => ({
      name: `${name}.${index}`,
      elementType: input.elementType,
      shape: input.shape.with(axis, size),
    })),
  });
}

/** Elements from `start` (inclusive) to `end` (exclusive; default: the size of the axis) along one axis. */
export function slice(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { axis, start, end }: { readonly axis: number; readonly start: number; readonly end?: number },
): Value {
  const node = { name, operator: "Slice" };
  const size = knownSize(node, input, axis);
  const last = end ?? size;
  if (start < 0 || start > last || last > size) {
    throw nodeError(node, `[${start}, ${last}) is outside ${describeValue(input)}.`);
  }
  const bounds = [start, last, axis].map((value) => graph.constant(`int64.${value}`, "int64", [1], [value]));
  const shape = input.shape.with(axis, last - start);
  return addStandardNode(graph, node, [input, ...bounds], { elementType: input.elementType, shape });
}

export function cast(graph: GraphBuilder, name: string, input: Value, elementType: ElementType): Value {
  if (input.elementType === elementType) return input;
  const node = { name, operator: "Cast" };
  return addStandardNode(
    graph,
    node,
    [input],
    { elementType, shape: input.shape },
    { to: int(onnxDataTypes[elementType]) },
  );
}

/** Over the last axis. */
export function layerNormalization(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { weight, bias, epsilon }: { readonly weight: Value; readonly bias: Value; readonly epsilon: number },
): Value {
  const node = { name, operator: "LayerNormalization" };
  checkElementType(node, input, ...floats);
  for (const parameter of [weight, bias]) {
    checkElementType(node, parameter, input.elementType);
    checkShape(node, parameter, [input.shape.at(-1)!]);
  }
  return addStandardNode(graph, node, [input, weight, bias], input, { epsilon: float(epsilon), axis: int(-1) });
}

/** Exact (erf), or its tanh approximation. */
export function gelu(graph: GraphBuilder, name: string, input: Value, approximate: "none" | "tanh"): Value {
  const node = { name, operator: "Gelu" };
  checkElementType(node, input, ...floats);
  return addStandardNode(graph, node, [input], input, { approximate: { kind: "string", value: approximate } });
}

export function relu(graph: GraphBuilder, name: string, input: Value): Value {
  return addStandardNode(graph, { name, operator: "Relu" }, [input], input);
}

export function tanh(graph: GraphBuilder, name: string, input: Value): Value {
  return addStandardNode(graph, { name, operator: "Tanh" }, [input], input);
}

export function abs(graph: GraphBuilder, name: string, input: Value): Value {
  return addStandardNode(graph, { name, operator: "Abs" }, [input], input);
}

export function cosine(graph: GraphBuilder, name: string, input: Value): Value {
  return addStandardNode(graph, { name, operator: "Cos" }, [input], input);
}

export function sine(graph: GraphBuilder, name: string, input: Value): Value {
  return addStandardNode(graph, { name, operator: "Sin" }, [input], input);
}

/** Means along an axis, which is left out of the result. */
export function meanOfAxis(graph: GraphBuilder, name: string, input: Value, axis: number): Value {
  const node = { name, operator: "ReduceMean" };
  checkElementType(node, input, ...floats);
  const axes = graph.constant(`int64.${axis}`, "int64", [1], [axis]);
  const shape = input.shape.toSpliced(axis, 1);
  return addStandardNode(graph, node, [input, axes], { elementType: input.elementType, shape }, { keepdims: int(0) });
}

/** The smallest number, without axes. */
export function reduceMin(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "ReduceMin" };
  return addStandardNode(graph, node, [input], { elementType: input.elementType, shape: [] }, { keepdims: int(0) });
}

/** Largest value along the last axis, which keeps size 1. */
export function reduceMaxLast(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "ReduceMax" };
  const axes = graph.constant("int64.-1", "int64", [1], [-1]);
  const shape = withLastSize(input.shape, 1);
  return addStandardNode(graph, node, [input, axes], { elementType: input.elementType, shape }, { keepdims: int(1) });
}

/** `0, 1, ..., limit - 1` for a scalar `limit`; `size` is the result's. */
export function range(graph: GraphBuilder, name: string, limit: Value, size: Dimension): Value {
  const node = { name, operator: "Range" };
  checkElementType(node, limit, "int64");
  checkShape(node, limit, []);
  const [start, step] = [0, 1].map((value) => graph.constant(`int64.scalar.${value}`, "int64", [], [value]));
  return addStandardNode(graph, node, [start!, limit, step!], { elementType: "int64", shape: [size] });
}

function int(value: number): AttributeValue {
  return { kind: "int", value };
}

function ints(value: readonly number[]): AttributeValue {
  return { kind: "ints", value };
}

function float(value: number): AttributeValue {
  return { kind: "float", value };
}
