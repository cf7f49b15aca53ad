/**
 * Image features for caches outside of the engine thread. Rows of the decoder's pool are copied to the host by another
 * thread, while the engine computes its next steps.
 */
import { EngineError } from "../contract/errors.ts";
import type { EncoderOutput } from "../thread/messages.ts";
import type { EncoderCache, StoredEmbeddings } from "./encoder-cache.ts";
import type { FeaturePool, PooledRows } from "./feature-pool.ts";

/**
 * Copies that wait or run. Each holds rows that other images may need. A picture beyond the limit is not copied: the next
 * replica that needs it encodes it again.
 */
export const MAX_PENDING_COPIES = 16;

interface PendingCopy {
  readonly mmHash: string;
  readonly rows: PooledRows;
}

export interface EmbeddingCopiesParts {
  /** Null for a decoder that takes features from the host. */
  readonly pool: FeaturePool | null;
  /** An image that is being copied is referenced, so that no other takes its rows. */
  readonly encoderCache: EncoderCache;
  /** Numbers of a row. */
  readonly imageWidth: number;
}

/** Mutable. */
export class EmbeddingCopies {
  readonly #parts: EmbeddingCopiesParts;
  /** Those that have not begun. */
  #waiting: PendingCopy[] = [];
  #finished: EncoderOutput[] = [];
  #numPending = 0;
  #running: Promise<void> = Promise.resolve();

  constructor(parts: EmbeddingCopiesParts) {
    this.#parts = parts;
  }

  /** Whether a copy waits or runs. */
  get isPending(): boolean {
    return this.#numPending > 0;
  }

  /** Begins to copy the features of an image that has been encoded. Those on the host are finished at once. */
  add(mmHash: string, embeddings: StoredEmbeddings): void {
    if (!("firstRow" in embeddings)) {
      this.#finish(mmHash, embeddings);
      return;
    }
    const { encoderCache } = this.#parts;
    if (this.#numPending >= MAX_PENDING_COPIES || !encoderCache.has(mmHash)) return;
    encoderCache.tryAcquire(mmHash, embeddings.numRows);
    this.#waiting.push({ mmHash, rows: embeddings });
    if (++this.#numPending === 1) this.#running = this.#copyAll();
  }

  /** Those that were finished since the last call. */
  takeFinished(): EncoderOutput[] {
    return this.#finished.splice(0);
  }

  /** Drops the copies that have not begun, and resolves when none runs. Call it before the pool is disposed of. */
  async settle(): Promise<void> {
    for (const { mmHash } of this.#waiting.splice(0)) this.#release(mmHash);
    await this.#running;
  }

  /** One after the other: together they would only compete for the same bus. */
  async #copyAll(): Promise<void> {
    const { pool, imageWidth } = this.#parts;
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const { mmHash, rows } = next;
      const numBytes = rows.numRows * imageWidth * Float32Array.BYTES_PER_ELEMENT;
      const data = new Float32Array(new SharedArrayBuffer(numBytes));
      try {
        await pool!.read(rows, data);
        this.#finish(mmHash, data);
      } catch (error) {
        // The copy has no caller that waits. If the device is lost, the next step says so.
        if (!(error instanceof EngineError)) throw error;
      } finally {
        this.#release(mmHash);
      }
    }
  }

  #finish(mmHash: string, data: Float32Array): void {
    const shape = [data.length / this.#parts.imageWidth, this.#parts.imageWidth];
    this.#finished.push({ mmHash, embeddings: { elementType: "float32", shape, data } });
  }

  #release(mmHash: string): void {
    this.#numPending--;
    this.#parts.encoderCache.release(mmHash);
  }
}
