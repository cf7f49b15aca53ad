/** Exports of the checkpoints that are on the hub, with its configuration files, compared with transformers. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../../engine/index.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { generations } from "../../../support/checkpoints/hub-checkpoints.ts";
import { hubExportCases, hubExports, writeHubExport } from "../../../support/checkpoints/hub-exports.ts";
import { compareHubAnswers, hubEngineConfig } from "../../../support/engine/hub-answers.ts";
import { buildModel } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const refused = new Set(["llava-onevision"]);
const served = hubExports.filter((name) => !refused.has(name));
const variants = served.map((name, index) => ({ name, generation: generations[index % 2]! }));

test.for(variants)("the export of $name with files of transformers $generation answers like it", async (variant) => {
  const { name, generation } = variant;
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubExport(name, generation, folder.path);
  const config = hubEngineConfig(folder.path, cache.path);
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    const cases = hubExportCases(name);
    const { numAnswers, numReusedTokens } = await compareHubAnswers(engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
    expect(numReusedTokens).toBeGreaterThan(0);
  } finally {
    await engine.close();
  }
});

test.for([
  // A graph may or may not keep padding out of its states.
  { name: "qwen3.5", decoder: { padding: null, kvLayers: [3], takesTokenTypes: false } },
  { name: "gemma3", decoder: { padding: "front", kvLayers: [0, 1, 2], keepsImagesWhole: false } },
  { name: "gemma3-token-types", decoder: { padding: "front", takesTokenTypes: true, keepsImagesWhole: true } },
  // Its features for the decoder's first layers are not in the export.
  { name: "qwen3-vl", decoder: { padding: "front", imageWidth: 64 } },
])("the interface of $name is read from its files", async ({ name, decoder }) => {
  await using folder = await createTemporaryFolder();
  expect(await buildHubExport(name, folder.path)).toMatchObject({ decoder });
});

test.for([
  { name: "llava-onevision", reason: "it lacks the embedding at the end of each row of a picture (image_newline)" },
])("the vision encoder of $name is rejected with the reason", async ({ name, reason }) => {
  await using folder = await createTemporaryFolder();
  await expect(buildHubExport(name, folder.path)).rejects.toMatchObject({
    code: "unsupported_model",
    message: `onnx/vision_encoder.onnx is not supported: ${reason}. Use the checkpoint's safetensors files.`,
  });
});

test.for([
  {
    field: "linear_conv_kernel_dim",
    value: 3,
    message: "past_conv.0 has shape [batch_size, 256, 4]; config.json implies [any, 256, 3]",
  },
  {
    field: "layer_types",
    value: ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    message: "has keys and values for 1 layers (past_key_values.0.key and so on); config.json implies 2",
  },
])("states that contradict $field are reported by name", async ({ field, value, message }) => {
  await using folder = await createTemporaryFolder();
  await writeHubExport("qwen3.5", "v5", folder.path);
  const file = join(folder.path, "config.json");
  const config = JSON.parse(await readFile(file, "utf8")) as { text_config: Record<string, unknown> };
  config.text_config[field] = value;
  await writeFile(file, JSON.stringify(config));
  await expect(build(folder.path)).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining(message),
  });
});

async function buildHubExport(name: string, folder: string): ReturnType<typeof buildModel> {
  await writeHubExport(name, "v5", folder);
  return build(folder);
}

async function build(folder: string): ReturnType<typeof buildModel> {
  const options = { dtype: "float32", device: "cpu", maxModelLen: 512, cacheFolder: folder, numThreads: 1 } as const;
  return buildModel(await openCheckpoint(folder, options), options);
}
