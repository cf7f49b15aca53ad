/** Vision embeddings as cached bytes: half precision in the store, single precision in memory. */
import { invariant } from "../../errors.ts";
import { toFloat16 } from "../../weights/float-conversion.ts";
import { decodeRecord, encodeRecord } from "./record-codec.ts";
import type { ItemTensor } from "../processed-item.ts";
import type { ValueCodec } from "./value-codec.ts";

/** To be raised with any change of what embeddings mean; part of every key. */
export const embeddingsVersion = 1;

/** Row-major [numEmbeddings, hiddenSize]; in memory that threads share, and never written to. */
export type Embeddings = Float32Array<SharedArrayBuffer>;

const tensorName = "embeddings";

export const embeddingsCodec: ValueCodec<Embeddings> = {
  encode(key, embeddings) {
    return encodeRecord(key, { tensors: new Map([[tensorName, toStored(embeddings)]]), details: null });
  },
  decode(key, bytes) {
    const tensor = decodeRecord(key, bytes)?.tensors.get(tensorName);
    if (tensor === undefined) return null;
    invariant(tensor.elementType === "float16" || tensor.elementType === "float32", "embeddings are floats");
    const embeddings = new Float32Array(new SharedArrayBuffer(tensor.data.length * Float32Array.BYTES_PER_ELEMENT));
    for (let index = 0; index < embeddings.length; index++) embeddings[index] = tensor.data[index];
    return embeddings;
  },
  byteLengthOf: (embeddings) => embeddings.byteLength,
};

/** Float16 where every number stays finite in it; a tower whose numbers do not is stored as it is. */
function toStored(embeddings: Embeddings): ItemTensor {
  const shape = [embeddings.length];
  const halves = toFloat16(embeddings);
  for (let index = 0; index < halves.length; index++) {
    if (!Number.isFinite(halves[index])) return { elementType: "float32", shape, data: embeddings };
  }
  return { elementType: "float16", shape, data: halves };
}
