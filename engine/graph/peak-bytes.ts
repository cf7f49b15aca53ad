/** Computes the memory that a run of a graph takes for intermediate values. */
import { bytesPerElement } from "../weights/safetensors.ts";
import type { AttributeValue, Branch, GraphBuilder, NodeDefinition } from "./graph-builder.ts";
import type { Dimension, Value } from "./value.ts";

/**
 * Walks the nodes in order, as ONNX Runtime's sequential executor does. A value takes memory from the node that
 * produces it to the last one that reads it; the result is the largest sum. Inputs, weights and outputs have memory of
 * their own and do not count; a reshaped value shares memory. Attention also needs scratch memory. The result is an
 * upper bound of the memory in use: in-place operators and fusions take less. It excludes the reserve of ONNX Runtime's
 * arena.
 *
 * @param sizes By name, for dimensions known only at run time. Sizes implied by a reshape, a concatenation or a
 * split may be omitted; any other omitted size counts as 1.
 */
export function peakBytes(graph: GraphBuilder, sizes: ReadonlyMap<string, number>): number {
  const known = new Map(sizes);
  const sizeOf = (dimension: Dimension): number =>
    typeof dimension === "number" ? dimension : (known.get(dimension) ?? 1);
  const bytesOf = ({ elementType, shape }: Value): number =>
    shape.reduce<number>((product, dimension) => product * sizeOf(dimension), bytesPerElement[elementType]);

  const peakOf = ({ nodes, outputs }: NodeList): number => {
    const roots = findRoots(nodes);
    const lastReaders = findLastReaders({ nodes, outputs }, roots);
    const held = new Map<Value, number>();
    let heldBytes = 0;
    let peak = 0;
    for (const [index, node] of nodes.entries()) {
      if (node.operator === "Reshape") learnSize(node, known);
      if (node.operator === "Concat") learnJoinedSize(node, known, sizeOf);
      if (node.operator === "Split") learnSplitSizes(node, known, sizeOf);
      for (const output of node.outputs) {
        if (!lastReaders.has(output)) continue;
        held.set(output, bytesOf(output));
        heldBytes += bytesOf(output);
      }
      const within = Math.max(0, ...branchesOf(node).map(peakOf));
      peak = Math.max(peak, heldBytes + within + scratchBytes(node, bytesOf, sizeOf));
      for (const [value, bytes] of held) {
        if (lastReaders.get(value) !== index) continue;
        held.delete(value);
        heldBytes -= bytes;
      }
    }
    return peak;
  };
  return peakOf(graph);
}

/** A graph, or a branch within a node. */
type NodeList = Pick<Branch, "nodes" | "outputs">;

function branchesOf({ attributes = {} }: NodeDefinition): Branch[] {
  return Object.values(attributes).flatMap((attribute) => (attribute.kind === "graph" ? [attribute.value] : []));
}

/** All values that a node reads, also within its branches. */
function readsOf(node: NodeDefinition): readonly (Value | null)[] {
  return [...node.inputs, ...branchesOf(node).flatMap(({ nodes }) => nodes.flatMap(readsOf))];
}

/** Maps a reshaped value to the value whose memory it shares. */
function findRoots(nodes: readonly NodeDefinition[]): ReadonlyMap<Value, Value> {
  const roots = new Map<Value, Value>();
  for (const { operator, inputs, outputs } of nodes) {
    const [input] = inputs;
    if (operator === "Reshape" && input) roots.set(outputs[0]!, roots.get(input) ?? input);
  }
  return roots;
}

/** Index of the last node that reads each value in the run's own memory. */
function findLastReaders(list: NodeList, roots: ReadonlyMap<Value, Value>): ReadonlyMap<Value, number> {
  const outputs = new Set(list.outputs);
  const made = new Set(list.nodes.flatMap((node) => node.outputs).filter((value) => !outputs.has(value)));
  const lastReaders = new Map<Value, number>();
  for (const [index, node] of list.nodes.entries()) {
    for (const input of readsOf(node)) {
      const root = input && (roots.get(input) ?? input);
      if (root && made.has(root)) lastReaders.set(root, index);
    }
  }
  return lastReaders;
}

/** A reshape keeps the number of elements, which determines the one unknown size of its output. */
function learnSize({ inputs: [input], outputs: [output] }: NodeDefinition, known: Map<string, number>): void {
  if (!input) return;
  let numElements = 1;
  for (const dimension of input.shape) {
    const size = typeof dimension === "number" ? dimension : known.get(dimension);
    if (size === undefined) return;
    numElements *= size;
  }
  const unknown: string[] = [];
  for (const dimension of output!.shape) {
    const size = typeof dimension === "number" ? dimension : known.get(dimension);
    if (size === undefined) unknown.push(String(dimension));
    else numElements /= size;
  }
  if (unknown.length === 1) known.set(unknown[0]!, numElements);
}

/** The size of values that are joined along an axis is the sum of theirs. */
function learnJoinedSize(
  { inputs, outputs: [output] }: NodeDefinition,
  known: Map<string, number>,
  sizeOf: (dimension: Dimension) => number,
): void {
  for (const [axis, dimension] of output!.shape.entries()) {
    if (typeof dimension !== "string" || inputs.every((input) => input?.shape[axis] === dimension)) continue;
    known.set(
      dimension,
      inputs.reduce((sum, input) => sum + sizeOf(input!.shape[axis]!), 0),
    );
  }
}

/** Parts whose sizes a run decides are as long as the split axis together: the first counts as all of it. */
function learnSplitSizes(
  { inputs: [input], outputs }: NodeDefinition,
  known: Map<string, number>,
  sizeOf: (dimension: Dimension) => number,
): void {
  const axis = outputs[0]!.shape.findIndex((dimension, index) => dimension !== input!.shape[index]);
  for (const [part, { shape }] of outputs.entries()) {
    const dimension = shape[axis];
    if (typeof dimension === "string") known.set(dimension, part === 0 ? sizeOf(input!.shape[axis]!) : 0);
  }
}

/** Memory that ONNX Runtime's kernels allocate while they run: the CPU's where both have one, as others allocate less. */
function scratchBytes(
  { operator, inputs, attributes }: NodeDefinition,
  bytesOf: (value: Value) => number,
  sizeOf: (dimension: Dimension) => number,
): number {
  const [query, key, , past] = inputs;
  if (!query) return 0;
  if (operator === "MultiHeadAttention" && key) {
    const numRows = intAttribute(attributes?.num_heads) * sizeOf(query.shape[0]!) * sizeOf(query.shape[1]!);
    // Query, key and value head by head, and the scores if a bias is added to them.
    return 3 * bytesOf(query) + (inputs[5] ? 4 * numRows * sizeOf(key.shape[1]!) : 0);
  }
  // The same, keys and values once for each head that reads them, and the scores.
  if (operator === "Attention" && key) {
    const queryHeads = intAttribute(attributes?.q_num_heads);
    const repeats = queryHeads / intAttribute(attributes?.kv_num_heads);
    return (
      2 * bytesOf(query) + 2 * repeats * bytesOf(key) + 4 * queryHeads * sizeOf(query.shape[1]!) * sizeOf(key.shape[1]!)
    );
  }
  // Query, key and value after rotation. Of an FP8 cache, keys and values of one sequence in 16 bits.
  if (operator === "PagedAttention") {
    const dense = past!.elementType === "float8e4m3" ? denseNumbers(past!, inputs[7]!, sizeOf) : 0;
    return bytesOf(query) + (key ? 2 * bytesOf(key) : 0) + 2 * 2 * dense;
  }
  if (operator !== "GroupQueryAttention" || !past) return 0;
  // The same, and a float per head for every pair of a new token and a cache position.
  const numHeads = intAttribute(attributes?.num_heads);
  const [batch, length] = query.shape;
  const scores = 4 * numHeads * sizeOf(batch!) * sizeOf(length!) * sizeOf(past.shape[2]!);
  return scores + bytesOf(query) + (key ? 2 * bytesOf(key) : 0);
}

/** Numbers of a part of the cache, [numBlocks, blockSize, numKvHeads, headDim], in the blocks of one sequence. */
function denseNumbers({ shape }: Value, blockTable: Value, sizeOf: (dimension: Dimension) => number): number {
  const [, ...sizesOfBlock] = shape;
  return sizesOfBlock.reduce<number>((product, size) => product * sizeOf(size), sizeOf(blockTable.shape[1]!));
}

function intAttribute(attribute: AttributeValue | undefined): number {
  return attribute?.kind === "int" ? attribute.value : 0;
}
