/**
 * A language as a table of nodes in shared memory. Posting it to the engine thread copies nothing, and a reader there
 * looks only at the nodes that a text reaches.
 */

/** Kinds of nodes, and the meaning of their three numbers. */
export const nodeKinds = {
  /** The empty text. */
  empty: 0,
  /** One character; a to b are the ranges in `ranges`. */
  set: 1,
  /** One of the words a to b. */
  words: 2,
  /** Node a, then node b. */
  sequence: 3,
  /** One of the nodes that `options` lists from a to b. */
  alternatives: 4,
  /** Node a, at least b times and at most c times. */
  repetition: 5,
  /** Rule a. */
  rule: 6,
  /** Node a, with at most b characters. */
  limited: 7,
} as const;

/** Kind, a, b, c. */
export const NODE_STRIDE = 4;
/** Means "no limit". No text is this long, so larger counts are equivalent. */
export const UNBOUNDED = 2 ** 30;

/** A plain value. Do not change it. */
export interface Program {
  /** [numNodes, 4] */
  readonly nodes: Int32Array<SharedArrayBuffer>;
  /** Node indices. */
  readonly options: Int32Array<SharedArrayBuffer>;
  /** [numRanges, 2]: first and last code point, ascending within a set. */
  readonly ranges: Int32Array<SharedArrayBuffer>;
  /** UTF-8. Word i starts where word i - 1 ends. The words of a node are distinct and in ascending byte order. */
  readonly wordBytes: Uint8Array<SharedArrayBuffer>;
  readonly wordEnds: Int32Array<SharedArrayBuffer>;
  /** The node of each rule's body. */
  readonly rules: Int32Array<SharedArrayBuffer>;
  readonly root: number;
}

/** Kind, a, b and c of a node. */
export function recordOf(
  nodes: ArrayLike<number>,
  node: number,
): readonly [kind: number, a: number, b: number, c: number] {
  const at = node * NODE_STRIDE;
  return [nodes[at]!, nodes[at + 1]!, nodes[at + 2]!, nodes[at + 3]!];
}

/** Approximate bytes of memory: small arrays take more than their numbers. */
export function sizeOfProgram({ nodes, options, ranges, wordBytes, wordEnds, rules }: Program): number {
  const arrays = [nodes, options, ranges, wordBytes, wordEnds, rules];
  return arrays.reduce((sum, { byteLength }) => sum + byteLength, 1024);
}
