/** Finds the tokens of a trie that can follow a position. */
import type { Position } from "./reading.ts";
import type { Recognizer } from "./recognizer.ts";
import type { TokenBitmask } from "./token-bitmask.ts";
import type { TokenTrie } from "./token-trie.ts";
import type { WorkMeter } from "./work-meter.ts";

/** Nodes visited before their work is counted. */
const NODES_PER_ENTRY = 1024;

/** Above this number, continuing from each exit takes longer than a walk with the callers. */
export const MAX_EXITS = 4096;

export interface TrieWalk {
  readonly recognizer: Recognizer;
  readonly meter: WorkMeter;
  readonly trie: TokenTrie;
  /** Receives the tokens found. */
  readonly bitmask: TokenBitmask;
  /** Receives the nodes with children at which the text can end, up to `MAX_EXITS`; null to skip this. */
  readonly exits: number[] | null;
}

/** Walks from node `first` up to node `end`, with `position` at the parent of `first`. Throws TooMuchWork. */
export function walkTrie(
  { recognizer, meter, trie, bitmask, exits }: TrieWalk,
  position: Position,
  first: number,
  end: number,
): void {
  const { bytes, depths, ends, tokenStarts, tokenIds } = trie;
  if (first >= end) return;
  /** By depth. */
  const path: Position[] = [];
  const firstDepth = depths[first]! - 1;
  path[0] = position;
  let numNodes = 0;
  for (let node = first; node < end;) {
    if (++numNodes === NODES_PER_ENTRY) {
      meter.spend(numNodes);
      numNodes = 0;
    }
    const depth = depths[node]! - firstDepth;
    const from = path[depth - 1]!;
    const byte = bytes[node]!;
    let next = from.next === null ? undefined : from.next[byte];
    if (next === undefined) next = recognizer.advance(from, byte);
    if (next === null) {
      node = ends[node]!;
      continue;
    }
    const tokensEnd = tokenStarts[node + 1]!;
    for (let index = tokenStarts[node]!; index < tokensEnd; index++) {
      const tokenId = tokenIds[index]!;
      bitmask[tokenId >> 5]! |= 1 << (tokenId & 31);
    }
    path[depth] = next;
    const nodeEnd = ends[node]!;
    node++;
    if (exits !== null && next.canEnd && nodeEnd > node && exits.length < MAX_EXITS) exits.push(node - 1);
  }
  meter.spend(numNodes);
}
