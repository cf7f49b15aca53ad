/** The tokens of a vocabulary as tries, so that a mask visits common prefixes once. */
import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Tokens of similar length, as the nodes of a trie in depth-first order: the nodes below a node follow it up to `ends`.
 * In shared memory, so that posting it copies nothing.
 */
export interface TokenTrie {
  /** Bytes of the longest token. */
  readonly maxLength: number;
  /** [numNodes]: the last byte of the node's prefix. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** [numNodes]: the length of the prefix, at least 1. */
  readonly depths: Uint16Array<SharedArrayBuffer>;
  /** [numNodes]: the first node that is not below this one. */
  readonly ends: Int32Array<SharedArrayBuffer>;
  /** [numNodes + 1]: node i has the tokens from `tokenStarts[i]` up to `tokenStarts[i + 1]`. */
  readonly tokenStarts: Int32Array<SharedArrayBuffer>;
  readonly tokenIds: Int32Array<SharedArrayBuffer>;
}

/** The bytes of all tokens, concatenated. */
export interface TokenBytes {
  readonly tokenBytes: Uint8Array;
  /** The bytes of token i start where those of token i - 1 end. A token without bytes is skipped. */
  readonly tokenEnds: Uint32Array;
}

/**
 * Maximum token length of each trie. Most tokens are short, so most of a mask stays the same until a count of
 * characters is almost used up; see `TokenMasks`.
 */
const lengthLimits = [8, 16, 32, 65_535];
/** Takes a few milliseconds. */
const TOKENS_PER_TURN = 4096;

/** Yields to the event loop every few milliseconds. Skips the tokens of `without`. */
export async function buildTokenTries(vocabulary: TokenBytes, without: ReadonlySet<number>): Promise<TokenTrie[]> {
  const { tokenEnds } = vocabulary;
  const startOf = (tokenId: number): number => (tokenId === 0 ? 0 : tokenEnds[tokenId - 1]!);
  /** By length and first two bytes, so that each sort is small. */
  const buckets = lengthLimits.map(() => new Map<number, number[]>());
  for (let tokenId = 0; tokenId < tokenEnds.length; tokenId++) {
    const [start, end] = [startOf(tokenId), tokenEnds[tokenId]!];
    if (start === end || without.has(tokenId)) continue;
    const bucketsOfLength = buckets[lengthLimits.findIndex((limit) => end - start <= limit)];
    const prefix = vocabulary.tokenBytes[start]! * 256 + (end - start > 1 ? vocabulary.tokenBytes[start + 1]! : 0);
    const bucket = bucketsOfLength?.get(prefix);
    if (bucket === undefined) bucketsOfLength?.set(prefix, [tokenId]);
    else bucket.push(tokenId);
  }
  const tries: TokenTrie[] = [];
  for (const bucketsOfLength of buckets) {
    if (bucketsOfLength.size === 0) continue;
    const builder = new TrieBuilder(vocabulary.tokenBytes);
    let numSinceTurn = 0;
    for (const prefix of [...bucketsOfLength.keys()].sort((left, right) => left - right)) {
      const bucket = bucketsOfLength.get(prefix)!;
      const views = bucket.map((tokenId): [number, Uint8Array] => [
        tokenId,
        vocabulary.tokenBytes.subarray(startOf(tokenId), tokenEnds[tokenId]),
      ]);
      views.sort(([, left], [, right]) => Buffer.compare(left, right));
      for (const [tokenId] of views) builder.add(tokenId, startOf(tokenId), tokenEnds[tokenId]!);
      if ((numSinceTurn += bucket.length) < TOKENS_PER_TURN) continue;
      numSinceTurn = 0;
      await nextTurn();
    }
    tries.push(builder.build());
  }
  return tries;
}

/** Expects tokens in the order of their bytes. */
class TrieBuilder {
  readonly #source: Uint8Array;
  readonly #bytes: number[] = [];
  readonly #depths: number[] = [];
  readonly #ends: number[] = [];
  readonly #tokenStarts: number[] = [];
  readonly #tokenIds: number[] = [];
  /** Open nodes: the one of depth i + 1 is at i. */
  readonly #path: number[] = [];
  #maxLength = 0;

  constructor(source: Uint8Array) {
    this.#source = source;
  }

  add(tokenId: number, start: number, end: number): void {
    let depth = 0;
    while (depth < this.#path.length && depth < end - start) {
      if (this.#bytes[this.#path[depth]!] !== this.#source[start + depth]) break;
      depth++;
    }
    this.#endPath(depth);
    for (; depth < end - start; depth++) {
      this.#path.push(this.#bytes.length);
      this.#bytes.push(this.#source[start + depth]!);
      this.#depths.push(depth + 1);
      this.#ends.push(0);
      this.#tokenStarts.push(this.#tokenIds.length);
    }
    this.#tokenIds.push(tokenId);
    this.#maxLength = Math.max(this.#maxLength, end - start);
  }

  build(): TokenTrie {
    this.#endPath(0);
    const numNodes = this.#bytes.length;
    const numTokens = this.#tokenIds.length;
    return {
      maxLength: this.#maxLength,
      bytes: filled(new Uint8Array(new SharedArrayBuffer(numNodes)), this.#bytes),
      depths: filled(new Uint16Array(new SharedArrayBuffer(numNodes * 2)), this.#depths),
      ends: filled(new Int32Array(new SharedArrayBuffer(numNodes * 4)), this.#ends),
      tokenStarts: filled(new Int32Array(new SharedArrayBuffer((numNodes + 1) * 4)), [...this.#tokenStarts, numTokens]),
      tokenIds: filled(new Int32Array(new SharedArrayBuffer(numTokens * 4)), this.#tokenIds),
    };
  }

  #endPath(depth: number): void {
    while (this.#path.length > depth) this.#ends[this.#path.pop()!] = this.#bytes.length;
  }
}

function filled<Numbers extends Uint8Array | Uint16Array | Int32Array>(
  array: Numbers,
  numbers: readonly number[],
): Numbers {
  array.set(numbers);
  return array;
}
