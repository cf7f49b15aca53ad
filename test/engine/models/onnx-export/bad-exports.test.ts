/** Exports that are incomplete or contradictory: the fault is named before anything is loaded. */
import { cp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { EngineError } from "../../../../engine/contract/errors.ts";
import type { BuildModelOptions } from "../../../../engine/models/build-model.ts";
import type { BuiltModel } from "../../../../engine/models/built-model.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { goldensFolder } from "../../../support/checkpoints/goldens.ts";
import { buildModel } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

type Damage = (folder: string) => Promise<void>;

const remove =
  (...names: readonly string[]): Damage =>
  async (folder) => {
    for (const name of names) await rm(join(folder, name));
  };

/** Replaces bytes with equally many others, so that the file keeps its length. */
const rename =
  (name: string, from: string, to: string): Damage =>
  async (folder) => {
    const file = join(folder, name);
    const bytes = (await readFile(file)).toString("latin1");
    expect(bytes).toContain(from);
    await writeFile(file, bytes.replaceAll(from, to), "latin1");
  };

const cut =
  (name: string, numBytes: number): Damage =>
  (folder) =>
    truncate(join(folder, name), numBytes);

const gitLfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 66592\n";

/** Fixes a size of inputs and outputs at 1, like an export without dynamic axes. */
const fixSize = (name: string, dimension: string): Damage => {
  const open = String.fromCharCode(0x12, dimension.length) + dimension;
  // The denotation of a dimension fills up the bytes of its name.
  const filler = String.fromCharCode(0x1a, dimension.length - 2) + "x".repeat(dimension.length - 2);
  return rename(name, open, `\u0008\u0001${filler}`);
};

const configure =
  (change: (config: Record<string, Record<string, unknown>>) => void): Damage =>
  async (folder) => {
    const file = join(folder, "config.json");
    const config = JSON.parse(await readFile(file, "utf8"));
    change(config);
    await writeFile(file, JSON.stringify(config));
  };

const decoder = "onnx/decoder_model_merged.onnx";

async function damagedExport(parent: string, name: string, damage?: Damage): Promise<string> {
  const path = join(parent, name);
  await cp(join(goldensFolder, "onnx-exports", name), path, { recursive: true });
  await damage?.(path);
  return path;
}

async function buildExport(path: string, parent: string, options?: Partial<BuildModelOptions>): Promise<BuiltModel> {
  const cacheFolder = join(parent, "cache");
  return buildModel(await openCheckpoint(path, { cacheFolder }), {
    dtype: "float32",
    device: "cpu",
    maxModelLen: null,
    cacheFolder,
    numThreads: 1,
    ...options,
  });
}

test.for<{
  readonly what: string;
  readonly name?: "llava" | "smolvlm" | "qwen2-vl";
  readonly damage?: Damage;
  readonly options?: Partial<BuildModelOptions>;
  readonly code: EngineError["code"];
  readonly message: string;
}>([
  {
    what: "no decoder at all",
    damage: async (folder) => {
      for (const suffix of ["", "_quantized", "_q4"]) await rm(join(folder, `onnx/decoder_model_merged${suffix}.onnx`));
    },
    code: "invalid_configuration",
    message: "The export has no decoder in float32, onnx/decoder_model_merged.onnx. It has none at all.",
  },
  {
    what: "no decoder in the dtype",
    name: "smolvlm",
    options: { dtype: "int4" },
    code: "invalid_configuration",
    message: "no decoder in int4, onnx/decoder_model_merged_q4.onnx. There are: decoder_model_merged.onnx (float32)",
  },
  {
    what: "no token embeddings",
    name: "qwen2-vl",
    damage: remove("onnx/embed_tokens.onnx"),
    code: "invalid_checkpoint",
    message: "lacks onnx/embed_tokens.onnx, which computes the inputs of decoder_model_merged.onnx",
  },
  {
    what: "no vision encoder",
    name: "qwen2-vl",
    damage: remove("onnx/vision_encoder.onnx"),
    code: "invalid_checkpoint",
    message: "lacks onnx/vision_encoder.onnx, which Qwen2VLForConditionalGeneration needs",
  },
  {
    what: "no file of weights beside the decoder",
    name: "smolvlm",
    damage: remove("onnx/decoder_model_merged.onnx_data"),
    code: "invalid_checkpoint",
    message: `${decoder} has weights in decoder_model_merged.onnx_data, which is not in the same folder`,
  },
  {
    what: "half of the weights beside the decoder",
    name: "smolvlm",
    damage: cut("onnx/decoder_model_merged.onnx_data", 45_408),
    code: "invalid_checkpoint",
    message: `onnx/decoder_model_merged.onnx_data is truncated: the weights of ${decoder} end at byte 90816, the file at 45408`,
  },
  {
    what: "a pointer of Git LFS in place of the weights beside the decoder",
    name: "smolvlm",
    damage: (folder) => writeFile(join(folder, "onnx/decoder_model_merged.onnx_data"), gitLfsPointer),
    code: "invalid_checkpoint",
    message: "onnx/decoder_model_merged.onnx_data is a Git LFS pointer, not the file; run `git lfs pull` in the clone.",
  },
  {
    what: "a pointer of Git LFS in a file's place",
    damage: (folder) => writeFile(join(folder, "onnx/embed_tokens.onnx"), gitLfsPointer),
    code: "invalid_checkpoint",
    message: "embed_tokens.onnx is a Git LFS pointer",
  },
  {
    what: "prompts of one length",
    damage: fixSize(decoder, "sequence_length"),
    code: "unsupported_model",
    message: "inputs_embeds has shape [batch_size, 1, 16], in which a length is fixed. Export it with dynamic axes.",
  },
  {
    what: "pasts of one length",
    damage: fixSize(decoder, "past_sequence_length"),
    code: "unsupported_model",
    message: "past_key_values.0.key has shape [batch_size, 2, 1, 8], in which a length is fixed",
  },
  {
    what: "a mask of one length",
    damage: fixSize(decoder, "total_sequence_length"),
    code: "unsupported_model",
    message: "attention_mask has shape [batch_size, 1], in which a length is fixed",
  },
  {
    what: "weights outside of the folder",
    name: "smolvlm",
    damage: rename(decoder, "decoder_model_merged.onnx_data", "../../../../../../../../data_a"),
    code: "invalid_checkpoint",
    message: "which is not in the same folder",
  },
  {
    what: "half of a file",
    damage: (folder) => truncate(join(folder, decoder), 30_000),
    code: "invalid_checkpoint",
    message: "decoder_model_merged.onnx is not an ONNX file, or it is incomplete",
  },
  {
    what: "a page of an error in a file's place",
    damage: (folder) => writeFile(join(folder, decoder), "<!doctype html><title>404</title>"),
    code: "invalid_checkpoint",
    message: "decoder_model_merged.onnx is not an ONNX file",
  },
  {
    what: "an input that nobody fills",
    damage: rename(decoder, "attention_mask", "attention_bias"),
    code: "unsupported_model",
    message: `${decoder} has an input attention_bias, which is not supported; supported are inputs_embeds, attention_mask, `,
  },
  {
    what: "no logits",
    damage: rename(decoder, "logits", "scores"),
    code: "unsupported_model",
    message: `${decoder} has no output logits; its outputs are scores, present.0.key, `,
  },
  {
    what: "features under another name",
    damage: rename("onnx/vision_encoder.onnx", "image_features", "image_fixtures"),
    code: "unsupported_model",
    message: "onnx/vision_encoder.onnx has no output image_features; its outputs are image_fixtures",
  },
  {
    what: "another number of layers",
    damage: configure(({ text_config: text }) => (text!.num_hidden_layers = 3)),
    code: "invalid_checkpoint",
    message: `${decoder} has keys and values for 2 layers (past_key_values.0.key and so on); config.json implies 3`,
  },
  {
    what: "another number of heads",
    damage: configure(({ text_config: text }) => (text!.num_key_value_heads = 4)),
    code: "invalid_checkpoint",
    message:
      "past_key_values.0.key has shape [batch_size, 2, past_sequence_length, 8]; config.json implies [any, 4, any, 8]",
  },
  {
    what: "another width",
    damage: configure(({ text_config: text }) => (text!.hidden_size = 32)),
    code: "invalid_checkpoint",
    message: "inputs_embeds has shape [batch_size, sequence_length, 16]; config.json implies [any, any, 32]",
  },
  {
    what: "tiles of another size",
    damage: configure(({ vision_config: vision }) => (vision!.image_size = 40)),
    code: "invalid_checkpoint",
    message: "pixel_values has shape [batch_size, 3, 32, 32]; config.json implies [any, 3, 40, 40]",
  },
  {
    what: "a longer sequence than the model takes",
    options: { maxModelLen: 1024 },
    code: "invalid_configuration",
    message: "1024 tokens; the checkpoint's limit is 512",
  },
])("$what is reported by name", async ({ name = "llava", damage, options, code, message }) => {
  await using folder = await createTemporaryFolder();
  const path = await damagedExport(folder.path, name, damage);
  await expect(buildExport(path, folder.path, options)).rejects.toMatchObject({
    code,
    message: expect.stringContaining(message),
  });
});

test.for(["decoder_model_merged", "embed_tokens"])("sequences decode one at a time if %s takes one", async (part) => {
  await using folder = await createTemporaryFolder();
  const path = await damagedExport(folder.path, "llava", fixSize(`onnx/${part}.onnx`, "batch_size"));
  const published = join(goldensFolder, "onnx-exports", "llava");
  expect((await buildExport(published, folder.path)).decoder).toMatchObject({ padding: "front" });
  expect((await buildExport(path, folder.path)).decoder).toMatchObject({ padding: null });
});

test("weights are found beside the decoder if their place begins with ./", async () => {
  await using folder = await createTemporaryFolder();
  const from = "decoder_model_merged.onnx_data";
  const to = `./${from.slice(2)}`;
  const path = await damagedExport(folder.path, "smolvlm", async (damaged) => {
    await rename(decoder, from, to)(damaged);
    await cp(join(damaged, "onnx", from), join(damaged, "onnx", to));
  });
  await expect(buildExport(path, folder.path)).resolves.toMatchObject({ decoder: { form: "export" } });
});

test("a checkpoint with both is served from its safetensors", async () => {
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "llava");
  await cp(join(goldensFolder, "onnx-exports", "llava"), path, { recursive: true });
  await cp(join(goldensFolder, "llava-default", "model.safetensors"), join(path, "model.safetensors"));
  const { onnxFileNames, tensors } = await openCheckpoint(path, { cacheFolder: folder.path });
  expect(onnxFileNames).toBeNull();
  expect(tensors.size).toBeGreaterThan(0);
});

test("variants have different content hashes", async () => {
  await using cache = await createTemporaryFolder();
  const checkpoint = await openCheckpoint(join(goldensFolder, "onnx-exports", "llava"), { cacheFolder: cache.path });
  const hashOf = async (dtype: BuildModelOptions["dtype"]): Promise<string> => {
    const options = { dtype, device: "cpu", maxModelLen: null, cacheFolder: cache.path, numThreads: 1 } as const;
    return (await buildModel(checkpoint, options)).contentHash;
  };
  const hashes = await Promise.all([hashOf("auto"), hashOf("float32"), hashOf("int8"), hashOf("int4")]);
  expect(hashes[0]).toBe(hashes[1]);
  expect(new Set(hashes).size).toBe(3);
});
