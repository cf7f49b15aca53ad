/** Caches processed items by hash, with embeddings in place of pixels wherever the embeddings are known. */
import { embeddingsField } from "../processed-item.ts";
import type { ProcessedItem } from "../processed-item.ts";
import type { CacheEntry } from "./cache-tier.ts";
import { divideItem, numEmbeddingsOfItem } from "./item-codecs.ts";
import type { Embeddings, ItemPlacement, ItemTensors } from "./item-codecs.ts";
import type { TieredCache, ValueCache } from "./tiered-cache.ts";

export interface DividedItemCacheParts {
  readonly placements: TieredCache<ItemPlacement>;
  readonly pixels: TieredCache<ItemTensors>;
  readonly embeddings: TieredCache<Embeddings>;
}

/** Stores no embeddings itself; others fill `embeddings`. */
export class DividedItemCache implements ValueCache<ProcessedItem> {
  readonly #parts: DividedItemCacheParts;

  constructor(parts: DividedItemCacheParts) {
    this.#parts = parts;
  }

  /**
   * Looks up placements and embeddings at once. Pixels are looked up only for items without embeddings, because they
   * can be a hundred times larger.
   */
  async getMany(keys: readonly string[]): Promise<readonly (ProcessedItem | null)[]> {
    const { placements, pixels, embeddings } = this.#parts;
    const [placed, encoded] = await Promise.all([placements.getMany(keys), embeddings.getMany(keys)]);
    const items = placed.map((placement, index) => encodedItem(placement, encoded[index]!));
    const isWanted = (index: number): boolean => items[index] === null && placed[index] !== null;
    const wanted = keys.filter((_, index) => isWanted(index));
    if (wanted.length === 0) return items;
    const found = (await pixels.getMany(wanted)).values();
    return items.map((item, index) => (isWanted(index) ? unencodedItem(placed[index]!, found.next().value) : item));
  }

  setMany(entries: readonly CacheEntry<ProcessedItem>[]): void {
    const divided = entries.map(({ key, value }) => ({ key, ...divideItem(value) }));
    this.#parts.placements.setMany(divided.map(({ key, placement }) => ({ key, value: placement })));
    this.#parts.pixels.setMany(divided.map(({ key, pixels }) => ({ key, value: pixels })));
  }

  async settled(): Promise<void> {
    await Promise.all([this.#parts.placements.settled(), this.#parts.pixels.settled()]);
  }
}

/** Null without embeddings, or if their number differs from the places in the prompt. */
function encodedItem(placement: ItemPlacement | null, embeddings: Embeddings | null): ProcessedItem | null {
  if (placement === null || embeddings?.shape[0] !== numEmbeddingsOfItem(placement)) return null;
  const { tensors, promptUpdates } = placement;
  return { tensors: new Map([...tensors, [embeddingsField, embeddings]]), promptUpdates };
}

function unencodedItem(placement: ItemPlacement | null, pixels: ItemTensors | null | undefined): ProcessedItem | null {
  if (placement === null || pixels == null) return null;
  return { tensors: new Map([...placement.tensors, ...pixels]), promptUpdates: placement.promptUpdates };
}
