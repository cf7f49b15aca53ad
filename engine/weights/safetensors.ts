/**
 * Reads the header of a safetensors file: the validated position of each tensor's bytes, so that later reads stay
 * inside the file. Does not read the tensors themselves.
 */
import type { FileHandle } from "node:fs/promises";
import { basename, resolve } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { excerpt } from "../excerpt.ts";
import { openRegularFile } from "./regular-file.ts";
import type { ElementType, StoredTensor } from "./stored-tensor.ts";

/** The format's own limit, so that a false length cannot cause a huge allocation. */
const MAX_HEADER_BYTES = 100_000_000;

/** The beginning of every Git LFS pointer file, which a clone without LFS has in place of the weights. */
const gitLfsPointer = Buffer.from("version ");

const elementTypes: ReadonlyMap<string, ElementType> = new Map([
  ["F32", "float32"],
  ["F16", "float16"],
  ["BF16", "bfloat16"],
  ["F64", "float64"],
  ["C64", "complex64"],
  ["F8_E4M3", "float8e4m3"],
  ["F8_E4M3FNUZ", "float8e4m3fnuz"],
  ["F8_E5M2", "float8e5m2"],
  ["F8_E5M2FNUZ", "float8e5m2fnuz"],
  ["F8_E8M0", "float8e8m0"],
  ["I8", "int8"],
  ["U8", "uint8"],
  ["I16", "int16"],
  ["U16", "uint16"],
  ["I32", "int32"],
  ["U32", "uint32"],
  ["I64", "int64"],
  ["U64", "uint64"],
  ["BOOL", "bool"],
]);

export const bytesPerElement: Readonly<Record<ElementType, number>> = {
  float32: 4,
  float16: 2,
  bfloat16: 2,
  float64: 8,
  complex64: 8,
  float8e4m3: 1,
  float8e4m3fnuz: 1,
  float8e5m2: 1,
  float8e5m2fnuz: 1,
  float8e8m0: 1,
  int8: 1,
  uint8: 1,
  int16: 2,
  uint16: 2,
  int32: 4,
  uint32: 4,
  int64: 8,
  uint64: 8,
  bool: 1,
};

/**
 * The layout is 8 bytes of little-endian header length, a JSON header `{ name: { dtype, shape, data_offsets } }`, then
 * the tensors, which must fill the rest of the file without holes or overlaps (the format's specification). Returns
 * null if the file does not exist.
 *
 * @throws EngineError `invalid_checkpoint` that names the file and the invalid tensor, if any.
 */
export async function readSafetensorsHeader(file: string): Promise<ReadonlyMap<string, StoredTensor> | null> {
  const fileName = basename(file);
  const handle = await openRegularFile(file);
  if (handle === null) return null;
  try {
    const { size } = await handle.stat();
    const headerBytes = await readHeaderLength(handle, size, fileName);
    const header = parseHeader(await readExactly(handle, headerBytes, 8, fileName), fileName);
    return locateTensors(header, resolve(file), 8 + headerBytes, size);
  } finally {
    await handle.close();
  }
}

async function readHeaderLength(handle: FileHandle, fileBytes: number, fileName: string): Promise<number> {
  if (fileBytes < 8) {
    throw new EngineError("invalid_checkpoint", `${fileName} is truncated: it has ${fileBytes} of at least 8 bytes.`);
  }
  const beginning = await readExactly(handle, 8, 0, fileName);
  if (beginning.equals(gitLfsPointer)) {
    throw new EngineError(
      "invalid_checkpoint",
      `${fileName} is a Git LFS pointer, not the weights; run \`git lfs pull\` in the clone.`,
    );
  }
  const declared = beginning.readBigUInt64LE();
  if (declared > BigInt(MAX_HEADER_BYTES)) {
    throw new EngineError(
      "invalid_checkpoint",
      `${fileName} is not a safetensors file: it declares a header of ${declared} bytes; the limit is ${MAX_HEADER_BYTES}.`,
    );
  }
  if (8n + declared > BigInt(fileBytes)) {
    throw new EngineError(
      "invalid_checkpoint",
      `${fileName} is truncated: its header ends at byte ${8n + declared}, the file at ${fileBytes}.`,
    );
  }
  return Number(declared);
}

async function readExactly(handle: FileHandle, length: number, position: number, fileName: string): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await handle.read(buffer, 0, length, position);
  if (bytesRead !== length) {
    throw new EngineError("invalid_checkpoint", `${fileName} is truncated: ${bytesRead} of ${length} bytes were read.`);
  }
  return buffer;
}

function parseHeader(bytes: Buffer, fileName: string): Readonly<Record<string, unknown>> {
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new EngineError("invalid_checkpoint", `${fileName} has a header that is not JSON.`, { cause });
  }
  if (!isRecord(header)) throw new EngineError("invalid_checkpoint", `${fileName} has a header that is not an object.`);
  return header;
}

/** Sorts tensors by position and rejects holes and overlaps, so that every byte of the file belongs to one tensor. */
function locateTensors(
  header: Readonly<Record<string, unknown>>,
  file: string,
  dataOffset: number,
  fileBytes: number,
): ReadonlyMap<string, StoredTensor> {
  const fileName = basename(file);
  const tensors = Object.entries(header)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, entry]) => locateTensor(name, entry, file, dataOffset))
    .sort((left, right) => left.byteOffset - right.byteOffset || left.byteLength - right.byteLength);

  let end = dataOffset;
  for (const { name, byteOffset, byteLength } of tensors) {
    if (byteOffset !== end) {
      const fault = byteOffset < end ? "overlaps the tensor before it" : "leaves a hole before it";
      throw new EngineError(
        "invalid_checkpoint",
        `Tensor ${excerptOfName(name)} in ${fileName} ${fault}: it starts at byte ${byteOffset}, expected ${end}.`,
      );
    }
    end = byteOffset + byteLength;
    if (end > fileBytes) {
      throw new EngineError(
        "invalid_checkpoint",
        `${fileName} is truncated: tensor ${excerptOfName(name)} ends at byte ${end}, the file at ${fileBytes}.`,
      );
    }
  }
  if (end !== fileBytes) {
    throw new EngineError(
      "invalid_checkpoint",
      `${fileName} has ${fileBytes} bytes, but its tensors end at byte ${end}.`,
    );
  }
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

function locateTensor(name: string, entry: unknown, file: string, dataOffset: number): StoredTensor {
  const fail = (fault: string): never => {
    throw new EngineError("invalid_checkpoint", `Tensor ${excerptOfName(name)} in ${basename(file)} ${fault}.`);
  };
  if (!isRecord(entry)) return fail("is not described by an object");
  const elementType = elementTypes.get(String(entry.dtype));
  if (elementType === undefined) {
    return fail(`has the dtype ${excerpt(entry.dtype)}; supported are ${[...elementTypes.keys()].join(", ")}`);
  }
  const { shape, data_offsets: offsets } = entry;
  if (!isListOfCounts(shape)) return fail(`has no shape: ${excerpt(shape)}`);
  if (!isListOfCounts(offsets) || offsets.length !== 2) return fail(`has no offsets: ${excerpt(offsets)}`);
  const [start, end] = offsets as [number, number];
  const declared = shape.reduce((product, size) => product * size, bytesPerElement[elementType]);
  if (end - start !== declared) {
    return fail(
      `has ${end - start} bytes; its shape [${shape.join(", ")}] of ${String(entry.dtype)} needs ${declared}`,
    );
  }
  return { name, elementType, shape, file, byteOffset: dataOffset + start, byteLength: declared };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isListOfCounts(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}

/** A header may contain names of any length; messages show their beginning. */
function excerptOfName(name: string): string {
  return name.length <= 200 ? name : `${name.slice(0, 200)}...`;
}
