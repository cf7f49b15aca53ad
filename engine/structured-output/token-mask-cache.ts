/** Keeps the most recently used masks. */
import { sizeOf } from "./token-bitmask.ts";
import type { TokenSet } from "./token-bitmask.ts";

/** The tokens that can follow at some point. */
export interface TokenMask {
  readonly tokens: TokenSet;
  /** Trie nodes with children at which the rule can end; null if there are too many to be useful. */
  readonly exits: Int32Array | null;
}

/** Size of an entry in addition to its content. */
const ENTRY_BYTES = 256;

/** Mutable. Shared by all grammars in use, so that their total memory is bounded. */
export class TokenMaskCache {
  readonly #maxBytes: number;
  /** In the order of last use. */
  readonly #entries = new Map<object, TokenMask>();
  #numBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get numBytes(): number {
    return this.#numBytes;
  }

  get(key: object): TokenMask | undefined {
    const mask = this.#entries.get(key);
    if (mask === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, mask);
    return mask;
  }

  has(key: object): boolean {
    return this.#entries.has(key);
  }

  /** The key must not be present. */
  add(key: object, mask: TokenMask): void {
    this.#entries.set(key, mask);
    this.#numBytes += bytesOf(mask);
    for (const [oldKey, old] of this.#entries) {
      if (this.#numBytes <= this.#maxBytes) break;
      this.#entries.delete(oldKey);
      this.#numBytes -= bytesOf(old);
    }
  }
}

function bytesOf({ tokens, exits }: TokenMask): number {
  return sizeOf(tokens) + (exits?.byteLength ?? 0) + ENTRY_BYTES;
}
