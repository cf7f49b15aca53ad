/** Parses image embeddings in a request: an .npy file, or a safetensors file with one tensor. */
import { EngineError } from "../contract/errors.ts";
import { numElements } from "../runtime/element-type.ts";
import { toFloat32 } from "../weights/float-conversion.ts";
import type { FloatElementType } from "../weights/float-conversion.ts";
import type { EncodedImage } from "./multimodal-processor.ts";
import { embeddingsField } from "./processed-item.ts";
import type { ItemTensor } from "./processed-item.ts";

export interface EmbeddingLimits {
  /** The decoder's hidden size. */
  readonly hiddenSize: number;
  readonly maxNumEmbeddings: number;
}

/** One tensor takes a hundred bytes. Parsing more would block other requests: a picture may have 20 MiB of it. */
const MAX_HEADER_BYTES = 64 * 1024;

interface StoredEmbeddings {
  readonly elementType: FloatElementType;
  readonly shape: readonly number[];
  /** Row-major, little-endian. */
  readonly bytes: Uint8Array;
}

const bytesOf: Readonly<Record<FloatElementType, number>> = { float32: 4, float16: 2, bfloat16: 2 };

/**
 * Returns float32 [numEmbeddings, hiddenSize]. The file has the shape [numEmbeddings, hiddenSize] or [1, numEmbeddings,
 * hiddenSize], in float32, float16 or (safetensors) bfloat16. Its number of bytes is checked before any is converted.
 * Throws EngineError `invalid_image` that names the item.
 */
export function parseImageEmbeddings(file: EncodedImage, limits: EmbeddingLimits): ItemTensor<"float32"> {
  const refuse = (message: string): EngineError =>
    new EngineError("invalid_image", `The image embeddings ${message}.`, { parameter: file.parameter });
  const stored = isNumpy(file.bytes) ? readNumpy(file.bytes, refuse) : readSafetensors(file.bytes, refuse);
  const { elementType, bytes } = stored;
  const shape = checkedShape(stored.shape, limits, refuse);
  const numBytes = numElements(shape) * bytesOf[elementType];
  if (bytes.byteLength !== numBytes) {
    throw refuse(`have ${bytes.byteLength} bytes of data; ${shape.join(" x ")} of ${elementType} takes ${numBytes}`);
  }
  const data = toFloat32(new Uint8Array(bytes), elementType);
  if (!data.every((value) => Number.isFinite(value))) throw refuse("contain values that are not finite");
  return { elementType: "float32", shape, data };
}

type Refuse = (message: string) => EngineError;

function checkedShape(
  shape: readonly number[],
  { hiddenSize, maxNumEmbeddings }: EmbeddingLimits,
  refuse: Refuse,
): readonly [number, number] {
  const described = `[${shape.join(", ")}]`;
  const [numEmbeddings, size] = shape.length === 3 && shape[0] === 1 ? shape.slice(1) : shape;
  if (numEmbeddings === undefined || size === undefined || shape.length > 3 || (shape.length === 3 && shape[0] !== 1)) {
    throw refuse(`have the shape ${described}; one image has [rows, ${hiddenSize}] or [1, rows, ${hiddenSize}]`);
  }
  if (size !== hiddenSize)
    throw refuse(`are ${size} wide in the shape ${described}; the model's width is ${hiddenSize}`);
  if (numEmbeddings < 1 || numEmbeddings > maxNumEmbeddings) {
    throw refuse(`have ${numEmbeddings} rows; an image of this model has 1 to ${maxNumEmbeddings}`);
  }
  return [numEmbeddings, size];
}

const numpyMagic = Buffer.from("\x93NUMPY", "latin1");

function isNumpy(bytes: Uint8Array): boolean {
  return numpyMagic.equals(bytes.subarray(0, numpyMagic.length));
}

const numpyTypes: Readonly<Record<string, FloatElementType>> = { "<f4": "float32", "<f2": "float16" };

/** Magic, two bytes of version, the header's length (2 bytes, 4 from version 2 on), the header: a Python literal. */
function readNumpy(bytes: Uint8Array, refuse: Refuse): StoredEmbeddings {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const lengthBytes = bytes[6] === 1 ? 2 : 4;
  const start = 8 + lengthBytes;
  if (bytes.length < start) throw refuse(`are truncated: ${bytes.length} bytes of an .npy file`);
  const headerBytes = lengthBytes === 2 ? view.getUint16(8, true) : view.getUint32(8, true);
  const end = start + headerBytes;
  if (end > bytes.length) throw refuse(`are truncated: the header ends at byte ${end}, the file at ${bytes.length}`);
  checkHeaderLength(headerBytes, refuse);
  const header = Buffer.from(bytes.subarray(start, end)).toString("latin1");
  const type = /'descr':\s*'([^']{1,16})'/.exec(header)?.[1] ?? "";
  const elementType = numpyTypes[type];
  if (elementType === undefined) throw refuse("are an .npy file of a type other than float32 and float16");
  if (!/'fortran_order':\s*False/.test(header)) throw refuse("are not stored in row-major order");
  const dimensions = /'shape':\s*\(([\d,\s]{0,100})\)/.exec(header)?.[1];
  if (dimensions === undefined) throw refuse("have no shape in their header");
  const shape = dimensions.split(",").flatMap((size) => (size.trim() === "" ? [] : [Number(size)]));
  return { elementType, shape, bytes: bytes.subarray(end) };
}

const safetensorsTypes: Readonly<Record<string, FloatElementType>> = {
  F32: "float32",
  F16: "float16",
  BF16: "bfloat16",
};

/** Of the files of torch.save, which can contain code, and of numpy.savez. */
const zipMagic = Buffer.from("PK\x03\x04", "latin1");

/** Eight bytes for the header's length, the header as JSON, the data. */
function readSafetensors(bytes: Uint8Array, refuse: Refuse): StoredEmbeddings {
  if (zipMagic.equals(bytes.subarray(0, zipMagic.length))) {
    throw refuse("are a ZIP file, as torch.save writes it; send the tensor as numpy.save or safetensors write it");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerBytes = bytes.length < 8 ? Number.POSITIVE_INFINITY : Number(view.getBigUint64(0, true));
  const dataStart = 8 + headerBytes;
  if (dataStart > bytes.length) throw refuse("are neither an .npy nor a safetensors file");
  checkHeaderLength(headerBytes, refuse);
  const header = parseHeader(Buffer.from(bytes.subarray(8, dataStart)).toString());
  if (header === null) throw refuse("are neither an .npy nor a safetensors file");
  const names = Object.keys(header).filter((name) => name !== "__metadata__");
  const name = names.includes(embeddingsField) ? embeddingsField : names[0];
  if (name === undefined || (names.length > 1 && name !== embeddingsField)) {
    throw refuse(`are a file of ${names.length} tensors, none of them named ${embeddingsField}`);
  }
  const { dtype, shape, data_offsets: offsets } = (header[name] ?? {}) as Readonly<Record<string, unknown>>;
  const elementType = typeof dtype === "string" ? safetensorsTypes[dtype] : undefined;
  if (elementType === undefined) throw refuse("are of a type other than F32, F16 and BF16");
  if (!isSizes(shape) || !isSizes(offsets) || offsets.length !== 2) throw refuse("have a broken header");
  const [start, end] = offsets as [number, number];
  if (start > end || dataStart + end > bytes.length) {
    throw refuse(`are truncated: their data ends at byte ${dataStart + end}, the file at ${bytes.length}`);
  }
  return { elementType, shape, bytes: bytes.subarray(dataStart + start, dataStart + end) };
}

function checkHeaderLength(numBytes: number, refuse: Refuse): void {
  if (numBytes <= MAX_HEADER_BYTES) return;
  throw refuse(`have a header of ${numBytes} bytes; the limit is ${MAX_HEADER_BYTES}`);
}

function parseHeader(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const header: unknown = JSON.parse(text);
    return typeof header === "object" && header !== null ? (header as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

function isSizes(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}
