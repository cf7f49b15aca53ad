/** Numbers of characters with which texts of a program's nodes can end. */
import { nodeKinds, recordOf, NODE_STRIDE } from "./program.ts";
import type { Program } from "./program.ts";

/** By node. Meaningless for nodes with rules. */
export interface LengthsToEnd {
  /** The fewest characters of a text. */
  readonly fewest: Float64Array;
  /** Characters with which every text that has begun can end. */
  readonly reserve: Float64Array;
}

/** Each set and each word is one character. */
export function lengthsToEnd({ nodes, options, wordEnds }: Program): LengthsToEnd {
  const numNodes = nodes.length / NODE_STRIDE;
  const fewest = new Float64Array(numNodes);
  const reserve = new Float64Array(numNodes);
  // Nodes come after their parts.
  for (let node = 0; node < numNodes; node++) {
    const [kind, a, b] = recordOf(nodes, node);
    switch (kind) {
      case nodeKinds.set:
        fewest[node] = reserve[node] = 1;
        break;
      case nodeKinds.words: {
        const start = a === 0 ? 0 : wordEnds[a - 1]!;
        // The empty word is the first one.
        fewest[node] = wordEnds[a] === start ? 0 : 1;
        reserve[node] = 1;
        break;
      }
      case nodeKinds.sequence:
        fewest[node] = fewest[a]! + fewest[b]!;
        reserve[node] = reserve[a]! + reserve[b]!;
        break;
      case nodeKinds.alternatives:
        fewest[node] = Infinity;
        for (const option of options.subarray(a, b)) {
          fewest[node] = Math.min(fewest[node]!, fewest[option]!);
          reserve[node] = Math.max(reserve[node]!, reserve[option]!);
        }
        break;
      case nodeKinds.repetition:
        fewest[node] = b === 0 ? 0 : b * fewest[a]!;
        reserve[node] = reserve[a]! + fewest[node]!;
        break;
      case nodeKinds.limited:
        fewest[node] = fewest[a]!;
        reserve[node] = reserve[a]!;
        break;
    }
  }
  return { fewest, reserve };
}
