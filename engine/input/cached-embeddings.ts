/** The way past the vision encoder: images whose embeddings an earlier request, of any replica, has paid for. */
import { numEmbeddingsOf } from "../core/image-span.ts";
import { embeddingsField } from "../multimodal/processed-item.ts";
import type { ImageFeature } from "../engine-request.ts";
import type { Embeddings } from "../multimodal/caches/embeddings-codec.ts";
import type { TieredCache } from "../multimodal/caches/tiered-cache.ts";

/** The images, with embeddings in place of what the encoder would make them of where those are cached. Never rejects. */
export async function withCachedEmbeddings(
  images: readonly ImageFeature[],
  cache: TieredCache<Embeddings>,
): Promise<readonly ImageFeature[]> {
  const wanted = images.filter(({ tensors }) => !tensors.has(embeddingsField));
  const found = new Map<string, Embeddings>();
  for (const [index, embeddings] of (await cache.getMany(wanted.map(({ mmHash }) => mmHash))).entries()) {
    if (embeddings !== null) found.set(wanted[index].mmHash, embeddings);
  }
  return images.map((image) => {
    const embeddings = found.get(image.mmHash);
    const isWhole = embeddings?.shape[0] === numEmbeddingsOf(image);
    return embeddings !== undefined && isWhole ? withEmbeddings(image, embeddings) : image;
  });
}

function withEmbeddings({ mmHash, placeholder }: ImageFeature, embeddings: Embeddings): ImageFeature {
  return { mmHash, placeholder, tensors: new Map([[embeddingsField, embeddings]]) };
}
