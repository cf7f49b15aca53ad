import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { resolveKvPrecision } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";

const { checkpointFolder } = await loadGoldens("llama");
const int8 = { kind: "int8", steps: null } as const;
const sampleOf = (length: number) => async () => Array.from({ length }, (_, index) => (index * 5 + 3) % 90);

async function stepsIn(cacheFolder: string): Promise<Float32Array[]> {
  const folder = join(cacheFolder, "kv-steps");
  const names = await readdir(folder);
  const files = await Promise.all(names.map((name) => readFile(join(folder, name))));
  return files.map((bytes) => new Float32Array(new Uint8Array(bytes).buffer));
}

test("steps are measured once, and again when their file is damaged", async () => {
  await using cache = await createTemporaryFolder();
  const options = { cacheFolder: cache.path, kvPrecision: int8, sampleTokens: sampleOf(32) };
  const first = await buildFrom(checkpointFolder, options);
  const [measured] = await stepsIn(cache.path);
  const { numLayers, numKvHeads, headDim } = first.decoder;
  expect(measured).toHaveLength(2 * numLayers * numKvHeads * headDim);
  expect(measured!.every((step) => step > 0)).toBe(true);

  const [name] = await readdir(join(cache.path, "kv-steps"));
  const file = join(cache.path, "kv-steps", name!);
  // Other steps give another graph, so the file is what counts.
  await writeFile(
    file,
    measured!.map((step) => step * 2),
  );
  const other = await buildFrom(checkpointFolder, options);
  await writeFile(file, "damaged");
  const again = await buildFrom(checkpointFolder, options);
  expect(other.decoder.path).not.toBe(first.decoder.path);
  expect(again.decoder.path).toBe(first.decoder.path);
});

test("a longer text makes no step smaller", async () => {
  const measured: Float32Array[] = [];
  for (const length of [8, 64]) {
    await using cache = await createTemporaryFolder();
    await buildFrom(checkpointFolder, { cacheFolder: cache.path, kvPrecision: int8, sampleTokens: sampleOf(length) });
    measured.push(...(await stepsIn(cache.path)));
  }
  const [short, long] = measured;
  expect(short!.every((step, channel) => step <= long![channel]!)).toBe(true);
  expect(short).not.toEqual(long);
});

const slots = { kind: "slots" } as const;
const paged = { kind: "paged", blockSize: 16 } as const;
type Settings = Pick<EngineConfig, "device" | "dtype" | "kvCacheDtype">;

test.for<[Settings, string]>([
  [{ device: "cpu", dtype: "int8" }, "int8"],
  [{ device: "cpu", dtype: "int4", kvCacheDtype: "auto" }, "int8"],
  [{ device: "cpu", dtype: "float32" }, "activations"],
  [{ device: "cpu", dtype: "float32", kvCacheDtype: "int8" }, "int8"],
  [{ device: "cpu", dtype: "int8", kvCacheDtype: "model" }, "activations"],
  [{ device: "webgpu", dtype: "int8" }, "activations"],
])("with slots, %j stores keys and values as %s", ([settings, kind]) => {
  expect(resolveKvPrecision(settings, slots, { onnxFileNames: null }).kind).toBe(kind);
});

test("8 bits are refused where no kernel reads them, and not chosen there", () => {
  const settings = { device: "cpu", dtype: "int8", kvCacheDtype: "int8" } as const;
  const refusal = /has no int8, which is for KV slots on the cpu/;
  expect(() => resolveKvPrecision(settings, paged, { onnxFileNames: null })).toThrow(refusal);
  expect(() => resolveKvPrecision({ ...settings, device: "webgpu" }, slots, { onnxFileNames: null })).toThrow(refusal);
  expect(() => resolveKvPrecision(settings, slots, { onnxFileNames: ["model.onnx"] })).toThrow(refusal);
  expect(resolveKvPrecision({ device: "cpu", dtype: "int8" }, paged, { onnxFileNames: null }).kind).toBe("activations");
});
