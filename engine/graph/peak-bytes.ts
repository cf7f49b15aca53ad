/** How much memory a run of a graph takes for what lies between its inputs and its outputs. */
import { bytesPerElement } from "../weights/safetensors.ts";
import type { GraphBuilder, NodeDefinition } from "./graph-builder.ts";
import type { Dimension, Value } from "./value.ts";

/**
 * Walks the nodes in their order, as ONNX Runtime's sequential executor does: a value takes memory from the node that
 * makes it to the last one that reads it, and the most that is taken at once is the answer. Inputs, weights and outputs
 * lie in memory of their own and do not count; a reshaped value is the same memory. Beside values, attention takes room
 * to work in. An upper bound of what is in use: in-place operators and fusions take less. What ONNX Runtime's arena
 * holds in reserve on top is not known here.
 *
 * @param sizes By name, of dimensions that are known at run time only. Those that a reshape implies need not be given;
 *   any other that is left out counts as 1.
 */
export function peakBytes(graph: GraphBuilder, sizes: ReadonlyMap<string, number>): number {
  const known = new Map(sizes);
  const sizeOf = (dimension: Dimension): number =>
    typeof dimension === "number" ? dimension : (known.get(dimension) ?? 1);
  const bytesOf = ({ elementType, shape }: Value): number =>
    shape.reduce<number>((product, dimension) => product * sizeOf(dimension), bytesPerElement[elementType]);

  const roots = findRoots(graph);
  const lastReaders = findLastReaders(graph, roots);
  const held = new Map<Value, number>();
  let heldBytes = 0;
  let peak = 0;
  for (const [index, node] of graph.nodes.entries()) {
    if (node.operator === "Reshape") learnSize(node, known);
    for (const output of node.outputs) {
      if (!lastReaders.has(output)) continue;
      held.set(output, bytesOf(output));
      heldBytes += bytesOf(output);
    }
    peak = Math.max(peak, heldBytes + scratchBytes(node, bytesOf, sizeOf));
    for (const [value, bytes] of held) {
      if (lastReaders.get(value) !== index) continue;
      held.delete(value);
      heldBytes -= bytes;
    }
  }
  return peak;
}

/** By reshaped value: the value whose memory it is. */
function findRoots(graph: GraphBuilder): ReadonlyMap<Value, Value> {
  const roots = new Map<Value, Value>();
  for (const { operator, inputs, outputs } of graph.nodes) {
    const [input] = inputs;
    if (operator === "Reshape" && input) roots.set(outputs[0], roots.get(input) ?? input);
  }
  return roots;
}

/** Index of the last node that reads each value that lies in memory of the run's own. */
function findLastReaders(graph: GraphBuilder, roots: ReadonlyMap<Value, Value>): ReadonlyMap<Value, number> {
  const outputs = new Set(graph.outputs);
  const made = new Set(graph.nodes.flatMap((node) => node.outputs).filter((value) => !outputs.has(value)));
  const lastReaders = new Map<Value, number>();
  for (const [index, { inputs }] of graph.nodes.entries()) {
    for (const input of inputs) {
      const root = input && (roots.get(input) ?? input);
      if (root && made.has(root)) lastReaders.set(root, index);
    }
  }
  return lastReaders;
}

/** A reshape keeps the number of elements, which tells the one size of its output that is not known yet. */
function learnSize({ inputs: [input], outputs: [output] }: NodeDefinition, known: Map<string, number>): void {
  if (!input) return;
  let numElements = 1;
  for (const dimension of input.shape) {
    const size = typeof dimension === "number" ? dimension : known.get(dimension);
    if (size === undefined) return;
    numElements *= size;
  }
  const unknown: string[] = [];
  for (const dimension of output.shape) {
    const size = typeof dimension === "number" ? dimension : known.get(dimension);
    if (size === undefined) unknown.push(String(dimension));
    else numElements /= size;
  }
  if (unknown.length === 1) known.set(unknown[0], numElements);
}

/** What ONNX Runtime's CPU kernels allocate while they run; those of other providers take less. */
function scratchBytes(
  { operator, inputs, attributes }: NodeDefinition,
  bytesOf: (value: Value) => number,
  sizeOf: (dimension: Dimension) => number,
): number {
  const [query, key, , past] = inputs;
  if (!query) return 0;
  // Query, key and value head by head.
  if (operator === "MultiHeadAttention") return 3 * bytesOf(query);
  if (operator !== "GroupQueryAttention" || !past) return 0;
  // The same, and a float of every head for every pair of a new token and a place of the cache.
  const heads = attributes?.num_heads;
  const numHeads = heads?.kind === "int" ? heads.value : 0;
  const [batch, length] = query.shape;
  const scores = 4 * numHeads * sizeOf(batch) * sizeOf(length) * sizeOf(past.shape[2]);
  return scores + bytesOf(query) + (key ? 2 * bytesOf(key) : 0);
}
