/** Halves a checkpoint for the npm package: float32 weights become float16. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { LARGEST_FLOAT16, toFloat16, toFloat32 } from "../engine/weights/float-conversion.ts";
import { readSafetensorsHeader } from "../engine/weights/safetensors.ts";

/**
 * Rewrites `model.safetensors` and the `dtype` of `config.json` in `folder`. Weights are rounded to nearest, ties to
 * even, and keep their order.
 *
 * @throws Error if there are no weights, or if one is not float32 or exceeds the range of float16.
 */
export async function halveCheckpoint(folder: string): Promise<void> {
  const file = join(folder, "model.safetensors");
  const tensors = await readSafetensorsHeader(file);
  if (tensors === null) throw new Error(`${file} does not exist.`);
  const source = await readFile(file);

  const entries: [string, object][] = [["__metadata__", { format: "pt" }]];
  const data: Uint8Array[] = [];
  let end = 0;
  for (const { name, elementType, shape, byteOffset, byteLength } of tensors.values()) {
    if (elementType !== "float32") throw new Error(`${name} in ${file} is ${elementType}, expected float32.`);
    // A copy, because the bytes of a tensor in a file need not be aligned.
    const values = toFloat32(new Uint8Array(source.subarray(byteOffset, byteOffset + byteLength)), elementType);
    if (!values.every((value) => Math.abs(value) <= LARGEST_FLOAT16)) {
      throw new Error(`${name} in ${file} has a value beyond ${LARGEST_FLOAT16}, the largest of float16.`);
    }
    const halves = toFloat16(values);
    data.push(new Uint8Array(halves.buffer));
    entries.push([name, { dtype: "F16", shape, data_offsets: [end, end + halves.byteLength] }]);
    end += halves.byteLength;
  }

  const json = JSON.stringify(Object.fromEntries(entries));
  // Padded with spaces, so that the tensors are aligned.
  const header = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const headerLength = Buffer.alloc(8);
  headerLength.writeBigUInt64LE(BigInt(header.length));
  await writeFile(file, Buffer.concat([headerLength, header, ...data]));

  const configFile = join(folder, "config.json");
  const config = JSON.parse(await readFile(configFile, "utf8")) as Readonly<Record<string, unknown>>;
  await writeFile(configFile, `${JSON.stringify({ ...config, dtype: "float16" }, null, 2)}\n`);
}
