/** Writes safetensors files and sharded checkpoints, so that tests read real ones. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

type FloatDtype = "F64" | "F32" | "F16" | "BF16" | "C64";
type Float8Dtype = "F8_E4M3" | "F8_E4M3FNUZ" | "F8_E5M2" | "F8_E5M2FNUZ" | "F8_E8M0";
type IntegerDtype = "I8" | "U8" | "I16" | "U16" | "I32" | "U32" | "I64" | "U64" | "BOOL";

export type SafetensorsDtype = FloatDtype | Float8Dtype | IntegerDtype;

export interface SafetensorsTensor {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  /** Little-endian, row-major. */
  readonly bytes: Uint8Array;
}

/** Encodes values as float32, or rounded to the nearest float16 or bfloat16 (ties to even). */
export function floatTensor(
  name: string,
  shape: readonly number[],
  values: ArrayLike<number>,
  dtype: "F32" | "F16" | "BF16" = "F32",
): SafetensorsTensor {
  const float32 = Float32Array.from(values);
  switch (dtype) {
    case "F32":
      return { name, dtype, shape, bytes: new Uint8Array(float32.buffer) };
    case "F16":
      return { name, dtype, shape, bytes: new Uint8Array(Float16Array.from(values).buffer) };
    case "BF16":
      return { name, dtype, shape, bytes: new Uint8Array(toBfloat16(float32).buffer) };
    default:
      return dtype satisfies never;
  }
}

function toBfloat16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer);
  return Uint16Array.from(words, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16);
}

/** The bytes of a file: header padded with spaces to a multiple of 8, tensors in the order given. */
export function encodeSafetensors(
  tensors: readonly SafetensorsTensor[],
  metadata: Readonly<Record<string, string>> | null = { format: "pt" },
): Buffer {
  const entries: [string, unknown][] = metadata === null ? [] : [["__metadata__", metadata]];
  let offset = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    entries.push([name, { dtype, shape, data_offsets: [offset, offset + bytes.byteLength] }]);
    offset += bytes.byteLength;
  }
  return encodeWithHeader(
    // Assigned one by one, a tensor named __proto__ would be lost.
    Object.fromEntries(entries),
    tensors.map((tensor) => tensor.bytes),
  );
}

/** The same with a header of any content, for invalid files. */
export function encodeWithHeader(header: unknown, parts: readonly Uint8Array[]): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(json.byteLength / 8) * 8, " ");
  json.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.byteLength));
  return Buffer.concat([length, padded, ...parts]);
}

export async function writeSafetensors(file: string, tensors: readonly SafetensorsTensor[]): Promise<void> {
  await writeFile(file, encodeSafetensors(tensors));
}

/** `config.json` and one `model.safetensors` in an existing folder. */
export async function writeCheckpoint(
  folder: string,
  config: unknown,
  tensors: readonly SafetensorsTensor[],
): Promise<void> {
  await writeFile(join(folder, "config.json"), JSON.stringify(config, null, 2));
  await writeSafetensors(join(folder, "model.safetensors"), tensors);
}

/** `config.json`, one file per shard and `model.safetensors.index.json`, in an existing folder. */
export async function writeShardedCheckpoint(
  folder: string,
  config: unknown,
  shards: readonly (readonly SafetensorsTensor[])[],
): Promise<void> {
  await writeFile(join(folder, "config.json"), JSON.stringify(config, null, 2));
  const weightMap: Record<string, string> = {};
  let totalSize = 0;
  for (const [index, tensors] of shards.entries()) {
    const number = (value: number): string => String(value).padStart(5, "0");
    const fileName = `model-${number(index + 1)}-of-${number(shards.length)}.safetensors`;
    await writeSafetensors(join(folder, fileName), tensors);
    for (const tensor of tensors) {
      weightMap[tensor.name] = fileName;
      totalSize += tensor.bytes.byteLength;
    }
  }
  const index = { metadata: { total_size: totalSize }, weight_map: weightMap };
  await writeFile(join(folder, "model.safetensors.index.json"), JSON.stringify(index, null, 2));
}
