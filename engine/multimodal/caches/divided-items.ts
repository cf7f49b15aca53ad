/**
 * Processed items as caches keep them. An item is two values: the placement, with the small tensors from which positions
 * are computed; and the pixels, which are not needed for an image with known embeddings. Embeddings are in half precision
 * in the store and in single precision in memory.
 */
import { invariant } from "../../contract/errors.ts";
import { typedArrayOver } from "../../runtime/element-type.ts";
import { toFloat16 } from "../../weights/float-conversion.ts";
import { numEmbeddingsIn } from "../placeholder.ts";
import { embeddingsField } from "../processed-item.ts";
import type { ItemTensor, ProcessedItem } from "../processed-item.ts";
import type { CacheEntry } from "./cache-tier.ts";
import { decodeRecord, encodeRecord } from "./record-codec.ts";
import type { JsonValue } from "./record-codec.ts";
import type { TieredCache, ValueCache } from "./tiered-cache.ts";
import type { ValueCodec } from "./value-codec.ts";

/** Increase it with any change of `ProcessedItem` or of its division. It is part of every key. */
export const PROCESSED_ITEM_VERSION = 3;

/** Tensors up to this size stay with the placement: grids and sizes do, pixels do not. */
const MAX_BYTES_OF_PLACEMENT = 256;

export type ItemTensors = ReadonlyMap<string, ItemTensor>;

/** Everything of an item except its large tensors. */
export interface ItemPlacement {
  readonly tensors: ItemTensors;
  readonly promptUpdates: ProcessedItem["promptUpdates"];
}

export function divideItem({ tensors, promptUpdates }: ProcessedItem): {
  placement: ItemPlacement;
  pixels: ItemTensors;
} {
  const isSmall = ([, { data }]: readonly [string, ItemTensor]): boolean => data.byteLength <= MAX_BYTES_OF_PLACEMENT;
  const small = new Map([...tensors].filter(isSmall));
  const pixels = new Map([...tensors].filter((entry) => !isSmall(entry)));
  return { placement: { tensors: small, promptUpdates }, pixels };
}

/** Number of rows that the vision encoder returns for the item. */
function numEmbeddingsOfItem({ promptUpdates }: ItemPlacement): number {
  const { full, isEmbed } = promptUpdates[0]!.content;
  return numEmbeddingsIn({ offset: 0, length: full.length, isEmbed });
}

export const itemPlacementCodec: ValueCodec<ItemPlacement> = {
  encode(key, { tensors, promptUpdates }) {
    return encodeRecord(key, { tensors, details: promptUpdates as unknown as JsonValue });
  },
  decode(key, bytes) {
    const record = decodeRecord(key, bytes);
    if (record === null) return null;
    return { tensors: record.tensors, promptUpdates: record.details as unknown as ProcessedItem["promptUpdates"] };
  },
  byteLengthOf({ tensors, promptUpdates }) {
    const bytesOfToken = 8;
    const numTokens = promptUpdates.reduce((sum, { content }) => sum + content.full.length, 0);
    return tensorBytesOf(tensors) + bytesOfToken * numTokens;
  },
};

export const itemTensorsCodec: ValueCodec<ItemTensors> = {
  encode: (key, tensors) => encodeRecord(key, { tensors, details: null }),
  decode: (key, bytes) => decodeRecord(key, bytes)?.tensors ?? null,
  byteLengthOf: tensorBytesOf,
};

/** Bytes of the tensors' elements. */
function tensorBytesOf(tensors: ItemTensors): number {
  let numBytes = 0;
  for (const { data } of tensors.values()) numBytes += data.byteLength;
  return numBytes;
}

/** Sufficient for every element type. */
const ALIGNMENT = 8;

/**
 * Returns the item with its tensors copied together. It then keeps nothing of its batch in memory, and messages do not
 * copy it.
 */
export function toSharedItem(item: ProcessedItem): ProcessedItem {
  const buffer = new SharedArrayBuffer(tensorBytesOf(item.tensors) + ALIGNMENT * item.tensors.size);
  const tensors = new Map<string, ItemTensor>();
  let offset = 0;
  for (const [name, { elementType, shape, data }] of item.tensors) {
    const copy = typedArrayOver(elementType, buffer, offset, data.length);
    new Uint8Array(buffer, offset, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    tensors.set(name, { elementType, shape, data: copy } as ItemTensor);
    offset += Math.ceil(data.byteLength / ALIGNMENT) * ALIGNMENT;
  }
  return { ...item, tensors };
}

/** Increase it with any change of the meaning of embeddings. It is part of every key. */
export const EMBEDDINGS_VERSION = 1;

/** Row-major [numEmbeddings, hiddenSize], read-only, in shared memory, so that messages do not copy it. */
export type Embeddings = ItemTensor<"float32">;

const tensorName = "embeddings";

export const embeddingsCodec: ValueCodec<Embeddings> = {
  encode: (key, embeddings) =>
    encodeRecord(key, { tensors: new Map([[tensorName, toStored(embeddings)]]), details: null }),
  decode(key, bytes) {
    const tensor = decodeRecord(key, bytes)?.tensors.get(tensorName);
    if (tensor === undefined) return null;
    const { elementType, shape } = tensor;
    invariant(elementType === "float16" || elementType === "float32", `embeddings of ${elementType}`);
    const data = new Float32Array(new SharedArrayBuffer(tensor.data.length * Float32Array.BYTES_PER_ELEMENT));
    // Without `set`, which takes five times as long from half precision.
    for (let index = 0; index < data.length; index++) data[index] = tensor.data[index]!;
    return { elementType: "float32", shape, data };
  },
  byteLengthOf: ({ data }) => data.byteLength,
};

/** Float16 if every number stays finite in it, otherwise unchanged. */
function toStored({ elementType, shape, data }: Embeddings): ItemTensor {
  const halves = toFloat16(data);
  for (let index = 0; index < halves.length; index++) {
    if (!Number.isFinite(halves[index])) return { elementType, shape, data };
  }
  return { elementType: "float16", shape, data: halves };
}

export interface DividedItemCacheParts {
  readonly placements: TieredCache<ItemPlacement>;
  readonly pixels: TieredCache<ItemTensors>;
  readonly embeddings: TieredCache<Embeddings>;
}

/**
 * Caches processed items by hash, with embeddings in place of pixels wherever the embeddings are known. Stores no
 * embeddings itself; others fill `embeddings`.
 */
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
