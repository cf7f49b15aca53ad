/** Changes that make a quantised checkpoint invalid, one at a time. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { loadQuantisedCheckpoint } from "./quantised-checkpoints.ts";
import type { SafetensorsTensor } from "./safetensors-writer.ts";

export interface Spoilable {
  readonly config: Record<string, unknown> & { quantization_config: Record<string, unknown> };
  readonly tensors: Map<string, SafetensorsTensor>;
}

interface HeaderEntry extends Pick<SafetensorsTensor, "dtype" | "shape"> {
  readonly data_offsets: readonly [number, number];
}

export async function readSpoilable(name: string): Promise<Spoilable> {
  const { checkpointFolder } = loadQuantisedCheckpoint(name);
  const bytes = await readFile(join(checkpointFolder, "model.safetensors"));
  const dataOffset = 8 + Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.toString("utf8", 8, dataOffset)) as Record<string, HeaderEntry>;
  const tensors = Object.entries(header)
    .filter(([tensorName]) => tensorName !== "__metadata__")
    .map(
      ([
        tensorName,
        {
          dtype,
          shape,
          data_offsets: [start, end],
        },
      ]): [string, SafetensorsTensor] => [
        tensorName,
        { name: tensorName, dtype, shape, bytes: bytes.subarray(dataOffset + start, dataOffset + end) },
      ],
    );
  const config = JSON.parse(await readFile(join(checkpointFolder, "config.json"), "utf8")) as Spoilable["config"];
  return { config, tensors: new Map(tensors) };
}

const module = "model.layers.0.self_attn.q_proj";

export function change(part: string, changes: (tensor: SafetensorsTensor) => Partial<SafetensorsTensor>) {
  return ({ tensors }: Spoilable): void => {
    const tensor = tensors.get(`${module}.${part}`)!;
    tensors.set(`${module}.${part}`, { ...tensor, ...changes(tensor) });
  };
}

export function rename(from: string, to: string) {
  return ({ tensors }: Spoilable): void => {
    const tensor = tensors.get(`${module}.${from}`)!;
    tensors.delete(`${module}.${from}`);
    tensors.set(`${module}.${to}`, { ...tensor, name: `${module}.${to}` });
  };
}

export function settings(changes: Record<string, unknown>) {
  return ({ config }: Spoilable): void => void Object.assign(config.quantization_config, changes);
}

export function removeConfig({ config }: Spoilable): void {
  delete (config as Record<string, unknown>).quantization_config;
}

/** Half of the rows. */
export function halved({ shape, bytes }: SafetensorsTensor): Partial<SafetensorsTensor> {
  return { shape: [shape[0]! / 2, ...shape.slice(1)], bytes: bytes.subarray(0, bytes.byteLength / 2) };
}

export function asInt64({ shape }: SafetensorsTensor): Partial<SafetensorsTensor> {
  const count = shape.reduce((product, size) => product * size, 1);
  return { dtype: "I64", bytes: new Uint8Array(8 * count) };
}

export function addTensor(part: string, tensor: Omit<SafetensorsTensor, "name">) {
  return ({ tensors }: Spoilable): void => {
    const name = `${module}.${part}`;
    tensors.set(name, { ...tensor, name });
  };
}

export function addWeight({ tensors }: Spoilable): void {
  const name = `${module}.weight`;
  tensors.set(name, { name, dtype: "F32", shape: [64, 64], bytes: new Uint8Array(4 * 64 * 64) });
}

/** compressed-tensors' older files have zero points as int8. */
export function int8ZeroPoints(value: number): (checkpoint: Spoilable) => void {
  return change("weight_zero_point", () => ({
    dtype: "I8",
    shape: [64, 1],
    bytes: new Uint8Array(Int8Array.from({ length: 64 }, (_, row) => (row === 40 ? value : 0)).buffer),
  }));
}

export function groupsOf(change: (groups: Int32Array) => void) {
  return ({ tensors }: Spoilable): void => {
    const tensor = tensors.get(`${module}.g_idx`)!;
    const bytes = Uint8Array.from(tensor.bytes);
    change(new Int32Array(bytes.buffer));
    tensors.set(tensor.name, { ...tensor, bytes });
  };
}

/** Set bits are NaN in every type of float. */
export function notFinite({ bytes }: SafetensorsTensor): Partial<SafetensorsTensor> {
  return { bytes: new Uint8Array(bytes.byteLength).fill(0xff) };
}

export function float8NaN({ bytes }: SafetensorsTensor): Partial<SafetensorsTensor> {
  return { bytes: Uint8Array.from(bytes, (byte, index) => (index === 100 ? 0x7f : byte)) };
}

export function state(text: string): (checkpoint: Spoilable) => void {
  const bytes = new TextEncoder().encode(text);
  return change("weight.quant_state.bitsandbytes__nf4", () => ({ bytes, shape: [bytes.byteLength] }));
}
