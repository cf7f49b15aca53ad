/** The places and names under which Model Optimizer and its users say how a checkpoint is quantised. */
import { cp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { loadQuantisedCheckpoint } from "../../../support/checkpoints/quantised-checkpoints.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const { checkpointFolder } = loadQuantisedCheckpoint("modelopt-nvfp4");
const { quantization_config: fields, ...config } = JSON.parse(
  await readFile(join(checkpointFolder, "config.json"), "utf8"),
) as { readonly quantization_config: { readonly quant_algo: string } };

/** Names and shapes of the quantised matrices. */
async function quantisedIn(files: Readonly<Record<string, object>>): Promise<(readonly [string, ...number[]])[]> {
  await using folder = await createTemporaryFolder();
  await cp(checkpointFolder, folder.path, { recursive: true });
  await rm(join(folder.path, "config.json"));
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(folder.path, name), JSON.stringify(content));
  }
  const { tensors } = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  return [...tensors.values()].flatMap(({ name, shape, quantised }) =>
    quantised === undefined ? [] : [[name, ...shape] as const],
  );
}

const producer = { name: "modelopt", version: "0.23.0" };
const older = { producer, quantization: { quant_algo: fields.quant_algo, kv_cache_quant_algo: null } };

test.for<[string, Record<string, object>]>([
  ["in hf_quant_config.json", { "config.json": config, "hf_quant_config.json": older }],
  ["below quantization", { "config.json": { ...config, quantization_config: { quant_method: "modelopt", ...older } } }],
  [
    "under vLLM's name",
    { "config.json": { ...config, quantization_config: { ...fields, quant_method: "modelopt_fp4" } } },
  ],
  [
    "in both files, of which config.json counts",
    {
      "config.json": { ...config, quantization_config: fields },
      "hf_quant_config.json": { producer, quantization: { quant_algo: "INT4_AWQ" } },
    },
  ],
])("matrices are quantised as stated %s", async ([, files]) => {
  const expected = await quantisedIn({ "config.json": { ...config, quantization_config: fields } });
  expect(expected.length).toBeGreaterThan(0);
  expect(await quantisedIn(files)).toEqual(expected);
});

test("an algorithm of hf_quant_config.json that is not served is rejected, and none does not count", async () => {
  const stating = (algorithm: string | null) =>
    quantisedIn({
      "config.json": config,
      "hf_quant_config.json": { producer, quantization: { quant_algo: algorithm } },
    });
  await expect(stating("W4A8_AWQ")).rejects.toMatchObject({ code: "unsupported_model" });
  await expect(stating(null)).rejects.toThrow(/config\.json has no quantization_config/);
});

test("the content hash depends on hf_quant_config.json", async () => {
  const hashWith = async (algorithm: string): Promise<string> => {
    await using folder = await createTemporaryFolder();
    await cp(checkpointFolder, folder.path, { recursive: true });
    await writeFile(join(folder.path, "config.json"), JSON.stringify(config));
    const file = { producer, quantization: { quant_algo: algorithm } };
    await writeFile(join(folder.path, "hf_quant_config.json"), JSON.stringify(file));
    const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
    return await checkpoint.contentHash();
  };
  expect(await hashWith("NVFP4")).not.toBe(await hashWith("MIXED_PRECISION"));
});
