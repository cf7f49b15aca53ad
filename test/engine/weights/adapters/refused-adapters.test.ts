/** Adapters that do not go with a model, and those that no weights can be merged with. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { withAdapter } from "../../../../engine/weights/adapters/merged-adapter.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { writeAdapter } from "../../../support/checkpoints/adapter-writer.ts";
import {
  floatTensor,
  writeCheckpoint,
  type SafetensorsTensor,
} from "../../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const module = "base_model.model.model.layers.0.q_proj";
const down = floatTensor(`${module}.lora_A.weight`, [2, 6], new Float32Array(12));
const up = floatTensor(`${module}.lora_B.weight`, [4, 2], new Float32Array(8));
const tensor = (name: string, shape: readonly number[]): SafetensorsTensor =>
  floatTensor(name, shape, new Float32Array(shape.reduce((product, size) => product * size, 1)));

/** A model with tied embeddings. */
const base = [
  tensor("model.layers.0.q_proj.weight", [4, 6]),
  tensor("model.embed_tokens.weight", [8, 6]),
  tensor("patches.weight", [4, 3, 2, 2]),
  tensor("model.one.weight", [2, 2]),
  tensor("language_model.one.weight", [2, 2]),
];

async function refusal(
  tensors: readonly SafetensorsTensor[],
  config: Readonly<Record<string, unknown>> = {},
): Promise<{ readonly code: string; readonly message: string; readonly setting: string }> {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "model");
  await mkdir(model);
  await writeCheckpoint(model, {}, base);
  const adapter = await writeAdapter(join(folder.path, "adapter"), tensors, config);
  const options = { cacheFolder: folder.path };
  // Awaited here, before the folder is removed.
  return await withAdapter(await openCheckpoint(model, options), adapter, options).then(
    () => Promise.reject(new Error("the adapter was taken")),
    (error) => error,
  );
}

test.for<[Readonly<Record<string, unknown>>, RegExp]>([
  [{ peft_type: "VERA" }, /its peft_type is "VERA"; only LORA is merged/],
  [{ peft_type: undefined }, /peft_type is missing; expected a text/],
  [{ lora_alpha: "8" }, /lora_alpha is "8"; expected a number/],
  [{ init_lora_weights: "pissa_niter_4" }, /its field init_lora_weights, "pissa_niter_4", is not supported/],
  [{ fan_in_fan_out: true }, /its field fan_in_fan_out, true, is not supported/],
  [{ alora_invocation_tokens: [1, 2] }, /its field alora_invocation_tokens, \[1,2\], is not supported/],
  [{ target_parameters: ["mlp.experts.gate_up_proj"] }, /its field target_parameters/],
  [{ alpha_pattern: { "q_proj(": 3 } }, /alpha_pattern has "q_proj\(", which is no regular expression/],
])("adapter_config.json with %o is refused", async ([config, message]) => {
  const error = await refusal([down, up], config);
  expect(error).toMatchObject({ code: "invalid_checkpoint", setting: "loraAdapter" });
  expect(error.message).toMatch(message);
});

test.for<[string, readonly SafetensorsTensor[], RegExp]>([
  ["nothing", [], /changes no tensor/],
  ["one of two matrices", [down], /only one of the matrices lora_A and lora_B of model\.layers\.0\.q_proj/],
  [
    "a module that the model lacks",
    [
      tensor("base_model.model.model.layers.7.q_proj.lora_A.weight", [2, 6]),
      tensor("base_model.model.model.layers.7.q_proj.lora_B.weight", [4, 2]),
    ],
    /changes model\.layers\.7\.q_proj\.weight, which the model does not have\. Is this its base model\?/,
  ],
  [
    "a module of two names",
    [tensor("base_model.model.one.lora_A.weight", [1, 2]), tensor("base_model.model.one.lora_B.weight", [2, 1])],
    /changes one\.weight, which can be model\.one\.weight or language_model\.one\.weight/,
  ],
  [
    "other inputs",
    [tensor(`${module}.lora_A.weight`, [2, 5]), up],
    /lora_A\.weight \[2, 5\] does not go with model\.layers\.0\.q_proj\.weight \[4, 6\]/,
  ],
  ["other outputs", [down, tensor(`${module}.lora_B.weight`, [5, 2])], /lora_B\.weight \[5, 2\] does not go with/],
  [
    "two ranks",
    [down, tensor(`${module}.lora_B.weight`, [4, 3])],
    /lora_B\.weight \[4, 3\] does not go with .*lora_A\.weight \[2, 6\]/,
  ],
  [
    "other magnitudes",
    [down, up, tensor(`${module}.lora_magnitude_vector`, [3])],
    /lora_magnitude_vector \[3\] does not go/,
  ],
  [
    "a convolution",
    [
      tensor("base_model.model.patches.lora_A.weight", [2, 3, 2, 2]),
      tensor("base_model.model.patches.lora_B.weight", [4, 2, 1, 1]),
    ],
    /lora_B\.weight \[4, 2, 1, 1\] does not go with/,
  ],
  [
    "an update of embeddings",
    [tensor("base_model.model.model.embed_tokens.lora_embedding_A", [2, 8])],
    /is of a kind that is not merged/,
  ],
  [
    "new rows of embeddings",
    [tensor("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", [1, 6])],
    /is of a kind that is not merged/,
  ],
  [
    "tied embeddings",
    [tensor("base_model.model.model.embed_tokens.weight", [8, 6])],
    /which this model shares with its output layer/,
  ],
  [
    "a longer vocabulary",
    [tensor("base_model.model.model.embed_tokens.weight", [9, 6])],
    /\[9, 6\] does not go with model\.embed_tokens\.weight \[8, 6\]/,
  ],
  ["integers", [{ ...down, dtype: "I32" }, up], /lora_A\.weight is of type int32/],
])("an adapter with %s is refused", async ([, tensors, message]) => {
  const error = await refusal(tensors);
  expect(error).toMatchObject({ code: "invalid_checkpoint", setting: "loraAdapter" });
  expect(error.message).toMatch(message);
});

test("files that are missing or no JSON are named", async () => {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "model");
  await mkdir(model);
  await writeCheckpoint(model, {}, base);
  const options = { cacheFolder: folder.path };
  const checkpoint = await openCheckpoint(model, options);
  const open = (name: string): Promise<unknown> => withAdapter(checkpoint, join(folder.path, name), options);
  await expect(open("model")).rejects.toThrow(/has no adapter_config\.json/);
  const broken = join(folder.path, "broken");
  await mkdir(broken);
  await writeFile(join(broken, "adapter_config.json"), "{");
  await expect(open("broken")).rejects.toThrow(/adapter_config\.json is not JSON/);
  await writeFile(join(broken, "adapter_config.json"), '{"peft_type": "LORA"}');
  await expect(open("broken")).rejects.toThrow(/has no adapter_model\.safetensors/);
});

test("integers that stay as they are take no update", async () => {
  const quantised = fileURLToPath(new URL("../../../fixtures/quantised/awq-64", import.meta.url));
  await using folder = await createTemporaryFolder();
  const options = { cacheFolder: folder.path };
  const checkpoint = await openCheckpoint(quantised, options);
  const name = "model.layers.0.self_attn.q_proj";
  const [rows, columns] = checkpoint.tensors.get(`${name}.weight`)!.shape as [number, number];
  const adapter = await writeAdapter(join(folder.path, "adapter"), [
    tensor(`base_model.model.${name}.lora_A.weight`, [2, columns]),
    tensor(`base_model.model.${name}.lora_B.weight`, [rows, 2]),
  ]);
  await expect(withAdapter(checkpoint, adapter, options)).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(
      /changes model\.layers\.0\.self_attn\.q_proj\.weight, which this model stores in integers/,
    ),
  });
});
