/** Vision embeddings by `mmHash`. An image that several requests contain is encoded once. */
import { invariant } from "../contract/errors.ts";
import type { PooledRows } from "./feature-pool.ts";

/** Row-major [numEmbeddings, hiddenSize] on the host, or rows of the decoder's pool. */
export type StoredEmbeddings = Float32Array | PooledRows;

interface EncoderCacheEntry {
  readonly numEmbeddings: number;
  numReferences: number;
  /** Null until the encoder has run. */
  embeddings: StoredEmbeddings | null;
}

export type EncoderCacheHold = "encoded" | "to-encode";

/**
 * Mutable. The scheduler acquires and releases entries; the runner stores and reads them. Unreferenced entries stay
 * until their room is needed, and the least recently used is evicted first.
 */
export class EncoderCache {
  readonly #maxNumEmbeddings: number;
  readonly #onEvict: (embeddings: StoredEmbeddings) => void;
  /** Ordered by last use. */
  readonly #entries = new Map<string, EncoderCacheEntry>();
  #numEmbeddings = 0;

  /**
   * @param maxNumEmbeddings Capacity of the cache. An item with more embeddings can never be acquired.
   * @param onEvict Receives embeddings that are no longer found.
   */
  constructor(maxNumEmbeddings: number, onEvict: (embeddings: StoredEmbeddings) => void = () => {}) {
    this.#maxNumEmbeddings = maxNumEmbeddings;
    this.#onEvict = onEvict;
  }

  get numEmbeddings(): number {
    return this.#numEmbeddings;
  }

  /**
   * Takes a reference. "to-encode" obliges the caller to have the item encoded before it is read, even if another sequence
   * asked for it in the same step. Returns null, and changes no referenced entry, if these leave no room.
   */
  tryAcquire(mmHash: string, numEmbeddings: number): EncoderCacheHold | null {
    const entry = this.#entryOf(mmHash, numEmbeddings);
    if (entry === null) return null;
    entry.numReferences++;
    this.#entries.delete(mmHash);
    this.#entries.set(mmHash, entry);
    return entry.embeddings === null ? "to-encode" : "encoded";
  }

  /** Releases a reference. An item that was never encoded is removed with its last reference. */
  release(mmHash: string): void {
    const entry = this.#referenced(mmHash);
    entry.numReferences--;
    if (entry.numReferences === 0 && entry.embeddings === null) this.#delete(mmHash, entry);
  }

  has(mmHash: string): boolean {
    return (this.#entries.get(mmHash)?.embeddings ?? null) !== null;
  }

  /**
   * Stores an item whose encoding took several steps, referenced or not. Returns false, and changes nothing, if it is
   * there already or referenced entries leave no room.
   */
  tryStore(mmHash: string, numEmbeddings: number, embeddings: StoredEmbeddings): boolean {
    if (this.has(mmHash)) return false;
    const entry = this.#entryOf(mmHash, numEmbeddings);
    if (entry === null) return false;
    entry.embeddings = embeddings;
    this.#entries.set(mmHash, entry);
    return true;
  }

  store(mmHash: string, embeddings: StoredEmbeddings): void {
    this.#referenced(mmHash).embeddings = embeddings;
  }

  /** The embeddings of an acquired and encoded item. */
  get(mmHash: string): StoredEmbeddings {
    const { embeddings } = this.#referenced(mmHash);
    invariant(embeddings !== null, `image ${mmHash} is read before it was encoded`);
    return embeddings;
  }

  #referenced(mmHash: string): EncoderCacheEntry {
    const entry = this.#entries.get(mmHash);
    invariant(entry !== undefined && entry.numReferences > 0, `image ${mmHash} is used without a reference`);
    return entry;
  }

  /**
   * The entry, or a new one; null if there is no room for it. A client may name two images alike. The rows of the first are
   * never read as those of the second, because other images lie behind them: the second waits until nothing references
   * the first.
   */
  #entryOf(mmHash: string, numEmbeddings: number): EncoderCacheEntry | null {
    const known = this.#entries.get(mmHash);
    if (known?.numEmbeddings === numEmbeddings) return known;
    if (known !== undefined && known.numReferences > 0) return null;
    if (known !== undefined) this.#delete(mmHash, known);
    return this.#tryReserve(numEmbeddings);
  }

  #tryReserve(numEmbeddings: number): EncoderCacheEntry | null {
    let room = this.#maxNumEmbeddings - this.#numEmbeddings;
    const evicted: [string, EncoderCacheEntry][] = [];
    for (const [mmHash, entry] of this.#entries) {
      if (room >= numEmbeddings) break;
      if (entry.numReferences > 0) continue;
      evicted.push([mmHash, entry]);
      room += entry.numEmbeddings;
    }
    if (room < numEmbeddings) return null;
    for (const [mmHash, entry] of evicted) this.#delete(mmHash, entry);
    this.#numEmbeddings += numEmbeddings;
    return { numEmbeddings, numReferences: 0, embeddings: null };
  }

  #delete(mmHash: string, entry: EncoderCacheEntry): void {
    this.#entries.delete(mmHash);
    this.#numEmbeddings -= entry.numEmbeddings;
    if (entry.embeddings !== null) this.#onEvict(entry.embeddings);
  }
}
