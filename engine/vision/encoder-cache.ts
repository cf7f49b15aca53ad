/** Vision embeddings by `mmHash`: an image that several requests hold is encoded once. */
import { invariant } from "../contract/errors.ts";

interface EncoderCacheEntry {
  readonly numEmbeddings: number;
  numReferences: number;
  /** Row-major [numEmbeddings, hiddenSize]; null until the encoder has run. */
  embeddings: Float32Array | null;
}

export type EncoderCacheHold = "encoded" | "to-encode";

/**
 * Mutable. The scheduler acquires and releases, the runner stores and reads. Entries without a reference stay, least
 * recently used first in line, until their room is needed.
 */
export class EncoderCache {
  readonly #maxNumEmbeddings: number;
  /** In the order of last use. */
  readonly #entries = new Map<string, EncoderCacheEntry>();
  #numEmbeddings = 0;

  /** @param maxNumEmbeddings Room of the cache; an item with more can never be acquired. */
  constructor(maxNumEmbeddings: number) {
    this.#maxNumEmbeddings = maxNumEmbeddings;
  }

  get numEmbeddings(): number {
    return this.#numEmbeddings;
  }

  /**
   * Takes a reference; "to-encode" obliges the caller to have the item encoded in this step, also where another
   * sequence asked for it in the same step. Null when referenced entries leave no room: nothing is changed then.
   */
  tryAcquire(mmHash: string, numEmbeddings: number): EncoderCacheHold | null {
    const entry = this.#entries.get(mmHash) ?? this.#tryReserve(numEmbeddings);
    if (entry === null) return null;
    entry.numReferences++;
    this.#entries.delete(mmHash);
    this.#entries.set(mmHash, entry);
    return entry.embeddings === null ? "to-encode" : "encoded";
  }

  /** Gives a reference back; an item that was never encoded is forgotten with its last one. */
  release(mmHash: string): void {
    const entry = this.#referenced(mmHash);
    entry.numReferences--;
    if (entry.numReferences === 0 && entry.embeddings === null) this.#delete(mmHash, entry);
  }

  has(mmHash: string): boolean {
    return (this.#entries.get(mmHash)?.embeddings ?? null) !== null;
  }

  store(mmHash: string, embeddings: Float32Array): void {
    this.#referenced(mmHash).embeddings = embeddings;
  }

  /** Row-major [numEmbeddings, hiddenSize] of an acquired and encoded item. */
  get(mmHash: string): Float32Array {
    const { embeddings } = this.#referenced(mmHash);
    invariant(embeddings !== null, `image ${mmHash} is read before it was encoded`);
    return embeddings;
  }

  #referenced(mmHash: string): EncoderCacheEntry {
    const entry = this.#entries.get(mmHash);
    invariant(entry !== undefined && entry.numReferences > 0, `image ${mmHash} is used without a reference`);
    return entry;
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
  }
}
