/** Encodes vision embeddings for caches: half precision in the store, single precision in memory. */
import { invariant } from "../../contract/errors.ts";
import { toFloat16 } from "../../weights/float-conversion.ts";
import type { ItemTensor } from "../processed-item.ts";
import { decodeRecord, encodeRecord } from "./record-codec.ts";
import type { ValueCodec } from "./value-codec.ts";

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
