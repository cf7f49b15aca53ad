/** Keeps the most recently used masks. */
import { sizeOf } from "./token-bitmask.ts";
import type { TokenSet } from "./token-bitmask.ts";

/** The tokens that can follow at some point. */
export interface TokenMask {
  readonly tokens: TokenSet;
  /** Trie nodes with children at which the rule can end; null if there are too many to be useful. */
  readonly exits: Int32Array | null;
}

/**
 * Stands for a position or a part of one. Refers to nothing of its grammar, because a cached key would otherwise keep
 * positions, and all positions that can be reached from them, after the grammar is unloaded.
 */
export interface MaskKey {
  /** The cached keys of the same grammar. */
  readonly group: MaskKeyGroup;
}

/** Belongs to one grammar, and is emptied with `removeAll`. For the cache only. */
export type MaskKeyGroup = Set<MaskKey>;

/** Size of an entry in addition to its content. */
const ENTRY_BYTES = 320;

/** Mutable. Shared by all grammars in use, so that their total memory is bounded. */
export class TokenMaskCache {
  readonly #maxBytes: number;
  /** In the order of last use. */
  readonly #entries = new Map<MaskKey, TokenMask>();
  #numBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get numBytes(): number {
    return this.#numBytes;
  }

  get(key: MaskKey): TokenMask | undefined {
    const mask = this.#entries.get(key);
    if (mask === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, mask);
    return mask;
  }

  has(key: MaskKey): boolean {
    return this.#entries.has(key);
  }

  /** The key must not be present. */
  add(key: MaskKey, mask: TokenMask): void {
    this.#entries.set(key, mask);
    key.group.add(key);
    this.#numBytes += bytesOf(mask);
    for (const oldKey of this.#entries.keys()) {
      if (this.#numBytes <= this.#maxBytes) break;
      this.#remove(oldKey);
    }
  }

  /** For a grammar whose masks cannot be found again. */
  removeAll(group: MaskKeyGroup): void {
    for (const key of group) this.#remove(key);
  }

  #remove(key: MaskKey): void {
    this.#numBytes -= bytesOf(this.#entries.get(key)!);
    this.#entries.delete(key);
    key.group.delete(key);
  }
}

function bytesOf({ tokens, exits }: TokenMask): number {
  return sizeOf(tokens) + (exits?.byteLength ?? 0) + ENTRY_BYTES;
}
