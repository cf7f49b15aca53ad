/** Quantised checkpoints that name no method, and files whose tensors are not whole. */
import { readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { readQuantisation, withoutQuantisation } from "../../../../engine/weights/quantised/quantised-tensors.ts";
import { writeCheckpoint } from "../../../support/checkpoints/safetensors-writer.ts";
import { readSpoilable, settings } from "../../../support/checkpoints/spoil-checkpoint.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildFrom } from "../../models/direct-build.ts";
import { testSpoiledCheckpoints } from "./spoiled-checkpoints.ts";

testSpoiledCheckpoints([
  [
    "another method",
    "awq-64",
    settings({ quant_method: "mxfp4" }),
    "unsupported_model",
    /quantization_config.quant_method = "mxfp4" is not supported: served are awq, gptq, compressed-tensors, fp8, bitsandbytes/,
  ],
  [
    "no method",
    "awq-64",
    ({ config }) => void (config.quantization_config = {}),
    "unsupported_model",
    /quantization_config.quant_method = null/,
  ],
  [
    "a method without any quantised tensor",
    "awq-64",
    ({ tensors }) => {
      for (const name of tensors.keys()) if (/q(?:weight|zeros)$|scales$/.test(name)) tensors.delete(name);
    },
    "invalid_checkpoint",
    /names the quantisation "awq, .*", but no tensor is quantised with it/,
  ],
]);

test("rejects a file whose quantised tensors are cut off", async () => {
  await using folder = await createTemporaryFolder();
  const { config, tensors } = await readSpoilable("awq-64");
  await writeCheckpoint(folder.path, config, [...tensors.values()]);
  const file = join(folder.path, "model.safetensors");
  await truncate(file, 20_000);
  await expect(buildFrom(folder.path, { cacheFolder: folder.path })).rejects.toThrow(/model.safetensors is truncated/);
});

test("rejects a file with two tensors of one name", async () => {
  await using folder = await createTemporaryFolder();
  const { config, tensors } = await readSpoilable("awq-64");
  await writeCheckpoint(folder.path, config, [...tensors.values()]);
  const file = join(folder.path, "model.safetensors");
  const bytes = await readFile(file);
  // Equally long, so that nothing else changes: JSON keeps the last of two equal names.
  const doubled = bytes
    .toString("latin1")
    .replaceAll("layers.1.self_attn.q_proj.qweight", "layers.0.self_attn.q_proj.qweight");
  await writeFile(file, Buffer.from(doubled, "latin1"));
  await expect(buildFrom(folder.path, { cacheFolder: folder.path })).rejects.toThrow(/leaves a hole before it/);
});

test("reads a quantisation that is described in text_config only, or there too", () => {
  const fields = { quant_method: "awq", bits: 4, group_size: 128, version: "gemm" };
  const nested = { model_type: "qwen2_5_vl", text_config: { hidden_size: 64, quantization_config: fields } };
  for (const config of [nested, { ...nested, quantization_config: { ...fields } }]) {
    expect(readQuantisation(config)?.description).toBe("awq, 4 bits in groups of 128");
    expect(withoutQuantisation(config)).toEqual({ model_type: "qwen2_5_vl", text_config: { hidden_size: 64 } });
  }
});
