/** The images of steps: encoded or given, kept in the encoder cache, gathered for chunks of prompts. */
import { invariant } from "../contract/errors.ts";
import type { SpanEmbeddings } from "../decoder/decoder.ts";
import { numEmbeddingsOf, visitEmbeddings } from "../multimodal/placeholder.ts";
import { embeddingsField } from "../multimodal/processed-item.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { EncoderCache, StoredEmbeddings } from "../vision/encoder-cache.ts";
import type { FeaturePool, PooledRows } from "../vision/feature-pool.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";
import type { ImageFeature } from "./engine-request.ts";

export interface StepImagesParts {
  /** Null for a text model, and if images are encoded beside the steps. */
  readonly visionEncoder: VisionEncoder | null;
  readonly encoderCache: EncoderCache;
  /** The decoder's; null if it takes embeddings from the host. */
  readonly pool: FeaturePool | null;
  /** Size of an image embedding. */
  readonly imageWidth: number;
}

interface EncodedOutput {
  readonly mmHash: string;
  readonly embeddings: StoredEmbeddings;
}

/** Mutable. */
export class StepImages {
  readonly #parts: StepImagesParts;
  /** Of this step. */
  #encoded: EncodedOutput[] = [];

  constructor(parts: StepImagesParts) {
    this.#parts = parts;
  }

  /** Call it at the start of a step: rows of encoder outputs may be those of other images after it. */
  forgetEncoded(): void {
    this.#encoded = [];
  }

  /** What this step has encoded. */
  takeEncoded(): readonly EncodedOutput[] {
    const encoded = this.#encoded;
    this.#encoded = [];
    return encoded;
  }

  /** If two prompts of this step share an image, both list it and it is encoded once. */
  encode(images: readonly ImageFeature[]): void {
    const { encoderCache, visionEncoder } = this.#parts;
    for (const image of images) {
      if (encoderCache.has(image.mmHash)) continue;
      const given = image.tensors.get(embeddingsField);
      if (given?.elementType === "float32") {
        encoderCache.store(image.mmHash, this.#toPool(image, given.data) ?? given.data);
        continue;
      }
      invariant(visionEncoder !== null, "an image reached a step without a vision encoder");
      const embeddings = encodeInto(this.#parts.pool, image, visionEncoder);
      encoderCache.store(image.mmHash, embeddings);
      this.#encoded.push({ mmHash: image.mmHash, embeddings });
    }
  }

  /** Nothing is stored if the image has been brought by another request, or its requests have ended and left no room. */
  storeLate(image: ImageFeature, embeddings: Float32Array): void {
    const { encoderCache } = this.#parts;
    const { mmHash } = image;
    this.#encoded.push({ mmHash, embeddings });
    if (encoderCache.has(mmHash)) return;
    const rows = this.#toPool(image, embeddings);
    const isStored = encoderCache.tryStore(mmHash, numEmbeddingsOf(image), rows ?? embeddings);
    if (!isStored && rows !== null) this.#parts.pool?.release(rows);
  }

  /** Copies embeddings into the decoder's pool; null if it has none, or no gap that is large enough. */
  #toPool(image: ImageFeature, embeddings: Float32Array): PooledRows | null {
    const { pool } = this.#parts;
    const rows = pool?.take(numEmbeddingsOf(image)) ?? null;
    if (pool === null || rows === null) return null;
    try {
      pool.write(rows, (target) => target.copyFrom(embeddings));
      return rows;
    } catch (error) {
      pool.release(rows);
      throw error;
    }
  }

  /** Of the images whose placeholders the chunk has. */
  embeddingsOf({ sequence, firstToken, numTokens }: PrefillChunk): SpanEmbeddings {
    const { encoderCache, imageWidth } = this.#parts;
    const endToken = firstToken + numTokens;
    const positions: bigint[] = [];
    const poolRows: bigint[] = [];
    const rows: Float32Array[] = [];
    for (const image of sequence.images.slice(sequence.firstHeldImage, sequence.endHeldImage)) {
      // The last one may still be under way.
      if (image.placeholder.offset >= endToken) break;
      const embeddings = encoderCache.get(image.mmHash);
      visitEmbeddings(image, firstToken, endToken, (token, embeddingRow) => {
        positions.push(BigInt(token - firstToken));
        const isPooled = "firstRow" in embeddings;
        poolRows.push(BigInt(isPooled ? embeddings.firstRow + embeddingRow : -1));
        if (!isPooled) rows.push(embeddings.subarray(embeddingRow * imageWidth, (embeddingRow + 1) * imageWidth));
      });
    }
    const gathered = new Float32Array(rows.length * imageWidth);
    rows.forEach((row, index) => gathered.set(row, index * imageWidth));
    return {
      embeddings: gathered,
      positions: BigInt64Array.from(positions),
      poolRows: BigInt64Array.from(poolRows),
    };
  }
}

/** Encodes an image into the decoder's pool, if it has one and a gap that is large enough; else to the host. */
export function encodeInto(
  pool: FeaturePool | null,
  image: ImageFeature,
  visionEncoder: VisionEncoder,
): StoredEmbeddings {
  const rows = visionEncoder.encodeInto === undefined ? null : (pool?.take(numEmbeddingsOf(image)) ?? null);
  if (pool === null || rows === null) return visionEncoder.encode(image);
  try {
    pool.write(rows, (target) => visionEncoder.encodeInto?.(image, target, pool.device));
    return rows;
  } catch (error) {
    pool.release(rows);
    throw error;
  }
}
