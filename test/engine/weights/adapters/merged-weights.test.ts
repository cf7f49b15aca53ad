/** Weights with a LoRA adapter equal those of a checkpoint into which it was merged. */
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { withAdapter } from "../../../../engine/weights/adapters/merged-adapter.ts";
import { openCheckpoint, type Checkpoint } from "../../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../../engine/weights/prepare-weights.ts";
import type { PreparedWeight, WeightFormat } from "../../../../engine/weights/prepared-weights.ts";
import type { StoredTensor } from "../../../../engine/weights/stored-tensor.ts";
import { writeAdapter } from "../../../support/checkpoints/adapter-writer.ts";
import { floatTensor, writeCheckpoint } from "../../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const formats: readonly WeightFormat[] = [
  { kind: "plain", elementType: "float32" },
  { kind: "plain", elementType: "bfloat16" },
  { kind: "blockwise", bits: 4, blockSize: 32 },
  { kind: "per-channel-int8" },
];

const quantisedFolder = new URL("../../../fixtures/quantised/", import.meta.url);

/** Over four MiB, so that threads convert it in several tasks. */
const [rows, columns] = [1600, 800] as const;

/** Multiples of a power of two, so that sums are exact in any order. */
function steps(length: number, factor: number, step: number): Float32Array {
  return Float32Array.from({ length }, (_, index) => (((index * factor) % 31) - 15) * step);
}

test.for([1, 2, 5, 8])("an update of rank %i becomes part of a weight in every format", async (rank) => {
  await using folder = await createTemporaryFolder();
  const base = steps(rows * columns, 7, 1 / 16);
  const down = steps(rank * columns, 3, 1 / 8);
  const up = steps(rows * rank, 11, 1 / 4);
  const scale = 2;
  const merged = base.map((value, index) => {
    const [row, column] = [Math.floor(index / columns), index % columns];
    let sum = value;
    for (let k = 0; k < rank; k++) sum += scale * up[row * rank + k]! * down[k * columns + column]!;
    return sum;
  });
  const shape = [rows, columns];
  const [baseFolder, mergedFolder] = [join(folder.path, "base"), join(folder.path, "merged")];
  await Promise.all([mkdir(baseFolder), mkdir(mergedFolder)]);
  await writeCheckpoint(baseFolder, {}, [floatTensor("model.layers.0.q_proj.weight", shape, base)]);
  await writeCheckpoint(mergedFolder, {}, [floatTensor("model.layers.0.q_proj.weight", shape, merged)]);
  const adapter = await writeAdapter(
    join(folder.path, "adapter"),
    [
      floatTensor("base_model.model.model.layers.0.q_proj.lora_A.weight", [rank, columns], down, "F16"),
      floatTensor("base_model.model.model.layers.0.q_proj.lora_B.weight", [rows, rank], up, "BF16"),
    ],
    { lora_alpha: scale * rank },
  );

  const requests = formats.map((format, index) => ({
    name: `weight.${index}`,
    sources: ["model.layers.0.q_proj.weight"],
    shape,
    format,
  }));
  const cacheFolder = join(folder.path, "cache");
  const options = { cacheFolder, numThreads: 2 };
  const adapted = await withAdapter(await openCheckpoint(baseFolder, options), adapter, options);
  const withUpdate = await prepareWeights(adapted, requests, options);
  const whole = await prepareWeights(await openCheckpoint(mergedFolder, options), requests, options);
  for (const { name } of requests) {
    expect((await bytesOf(withUpdate.get(name)!)).equals(await bytesOf(whole.get(name)!)), name).toBe(true);
  }
});

async function bytesOf({ weight, scales }: PreparedWeight): Promise<Buffer> {
  const parts = [weight, scales].filter((tensor): tensor is StoredTensor => tensor !== null);
  return Buffer.concat(
    await Promise.all(
      parts.map(async ({ file, byteOffset, byteLength }) =>
        (await readFile(file)).subarray(byteOffset, byteOffset + byteLength),
      ),
    ),
  );
}

test.for(["bnb-nf4", "bnb-int8", "fp8-blocks"])("what %s dequantises gets the update", async (name) => {
  await using folder = await createTemporaryFolder();
  const options = { cacheFolder: folder.path, numThreads: 1 };
  const base = await openCheckpoint(fileURLToPath(new URL(`${name}/`, quantisedFolder)), options);
  const module = "model.layers.0.mlp.down_proj";
  const { shape, quantised } = base.tensors.get(`${module}.weight`)!;
  expect(quantised).toBeDefined();
  const [numRows, numColumns] = shape as [number, number];
  const [down, up] = [steps(2 * numColumns, 3, 1 / 8), steps(numRows * 2, 11, 1 / 4)];
  const adapter = await writeAdapter(join(folder.path, "adapter"), [
    floatTensor(`base_model.model.${module}.lora_A.weight`, [2, numColumns], down),
    floatTensor(`base_model.model.${module}.lora_B.weight`, [numRows, 2], up),
  ]);
  const request = { name: "weight", sources: [`${module}.weight`], shape, format: formats[0]! };
  const valuesOf = async (checkpoint: Checkpoint): Promise<Float32Array> => {
    const prepared = await prepareWeights(checkpoint, [request], options);
    return new Float32Array(Uint8Array.from(await bytesOf(prepared.get("weight")!)).buffer);
  };
  const before = await valuesOf(base);
  const after = await valuesOf(await withAdapter(base, adapter, options));
  const expected = before.map((value, index) => {
    const [row, column] = [Math.floor(index / numColumns), index % numColumns];
    return value + up[2 * row]! * down[column]! + up[2 * row + 1]! * down[numColumns + column]!;
  });
  expect(Math.max(...after.map((value, index) => Math.abs(value - expected[index]!)))).toBeLessThan(1e-5);
});

test("a change of the adapter changes the content hash, and the model's own weights stay where they are", async () => {
  await using folder = await createTemporaryFolder();
  const [model, cacheFolder] = [join(folder.path, "base"), join(folder.path, "cache")];
  await mkdir(model);
  const tensors = ["q", "v"].map((name) => floatTensor(`model.${name}.weight`, [4, 4], steps(16, 7, 1)));
  await writeCheckpoint(model, {}, tensors);
  const base = await openCheckpoint(model, { cacheFolder });
  const hashes = [await base.contentHash()];
  for (const [index, factor] of [3, 5].entries()) {
    const adapter = await writeAdapter(join(folder.path, `adapter-${index}`), [
      floatTensor("base_model.model.q.lora_A.weight", [2, 4], steps(8, factor, 1)),
      floatTensor("base_model.model.q.lora_B.weight", [4, 2], steps(8, 9, 1)),
    ]);
    const adapted = await withAdapter(base, adapter, { cacheFolder });
    hashes.push(await adapted.contentHash());
    expect(adapted.tensors.get("model.v.weight")).toEqual(base.tensors.get("model.v.weight"));
    expect(adapted.tensors.get("model.q.weight")!.update).toMatchObject({ scale: 1 });
  }
  expect(new Set(hashes).size).toBe(3);
});
