import { cp, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { readSafetensorsHeader } from "../../../engine/weights/safetensors.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { encodeWithHeader, floatTensor, writeSafetensors } from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder, encodeImages } from "./direct-decoder.ts";
import { decodeGolden, relativeError } from "./golden-decoding.ts";

type Header = Record<string, { shape: number[] }>;

/** A copy of a golden checkpoint with other names or shapes of tensors, and other configuration fields. */
async function copyCheckpoint(
  source: string,
  target: string,
  changeHeader: (header: Header) => Header,
  configFields: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  await cp(source, target, { recursive: true });
  const file = join(target, "model.safetensors");
  const bytes = await readFile(file);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + headerBytes).toString("utf8")) as Header;
  await writeFile(file, encodeWithHeader(changeHeader(header), [bytes.subarray(8 + headerBytes)]));
  const configFile = join(target, "config.json");
  const config = JSON.parse(await readFile(configFile, "utf8")) as Record<string, unknown>;
  await writeFile(configFile, JSON.stringify({ ...config, ...configFields }));
}

const spellings = [
  {
    version: "the hub's LLaVA 1.5",
    rename: (name: string) => name.replace(/^vision_tower\./, "vision_tower.vision_model."),
  },
  {
    version: "transformers 4.5x",
    rename: (name: string) =>
      name
        .replace(/^language_model\.model\./, "model.language_model.")
        .replace(/^language_model\.lm_head/, "lm_head")
        .replace(/^vision_tower\./, "model.vision_tower.vision_model.")
        .replace(/^multi_modal_projector\./, "model.multi_modal_projector."),
  },
] as const;

test.for(spellings)("tensors named as in $version are found", async ({ rename }) => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("llava-default");
  const renamed = join(folder.path, "renamed");
  await copyCheckpoint(checkpointFolder, renamed, (header) =>
    Object.fromEntries(Object.entries(header).map(([name, value]) => [rename(name), value])),
  );
  const model = await buildFrom(renamed, { cacheFolder: folder.path });
  using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 512 });
  for (const golden of cases) {
    const features = golden.pixelValues === null ? null : encodeImages(model, golden.pixelValues);
    expect(relativeError(decodeGolden(decoder, model, golden, 512, features), golden.logits)).toBeLessThan(1e-4);
  }
});

// To values that the type represents exactly.
const rounding = {
  F16: (values: Float32Array): Float32Array => Float32Array.from(Float16Array.from(values)),
  BF16: (values: Float32Array): Float32Array =>
    new Float32Array(new Uint32Array(values.buffer).map((word) => word & 0xffff_0000).buffer),
} as const;

interface RoundedCopy {
  readonly rounded: keyof typeof rounding;
  readonly stored: "F16" | "BF16" | "F32";
  /** Bytes of a tensor before all others. */
  readonly padding: number;
}

async function copyRounded(source: string, target: string, { rounded, stored, padding }: RoundedCopy): Promise<void> {
  await cp(source, target, { recursive: true });
  const file = join(target, "model.safetensors");
  const bytes = await readFile(file);
  const tensors = [...(await readSafetensorsHeader(file))!.values()].map(({ name, shape, byteOffset, byteLength }) => {
    const values = new Float32Array(bytes.buffer.slice(bytes.byteOffset + byteOffset).slice(0, byteLength));
    return floatTensor(name, shape, rounding[rounded](values), stored);
  });
  const odd = { name: "odd", dtype: "I8", shape: [padding], bytes: new Uint8Array(padding) } as const;
  await writeSafetensors(file, [odd, ...tensors]);
}

test.for([
  { rounded: "F16", padding: 8, layout: "aligned" },
  { rounded: "BF16", padding: 8, layout: "aligned" },
  // Files without padding: no kernel may read such floats in place.
  { rounded: "F16", padding: 7, layout: "at odd addresses" },
] as const)("$rounded tensors $layout are computed in single precision", async ({ rounded, padding }) => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("llava-full");
  const logitsOf = async (stored: RoundedCopy["stored"]): Promise<Float32Array> => {
    const copy = join(folder.path, stored);
    await copyRounded(checkpointFolder, copy, { rounded, stored, padding });
    const model = await buildFrom(copy, { cacheFolder: folder.path });
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 512 });
    return decodeGolden(decoder, model, cases[1]!, 512, encodeImages(model, cases[1]!.pixelValues!));
  };
  expect(relativeError(await logitsOf(rounded), await logitsOf("F32"))).toBeLessThan(1e-6);
});

test("a missing tensor is named", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const broken = join(folder.path, "broken");
  const name = "model.layers.1.mlp.up_proj.weight";
  await copyCheckpoint(checkpointFolder, broken, (header) => {
    const { [name]: tensor, ...others } = header;
    return { ...others, unknown: tensor! };
  });
  await expect(buildFrom(broken, { cacheFolder: folder.path })).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining(name),
  });
});

test.for([
  ["intermediate_size", 100, "model.layers.0.mlp"],
  ["vocab_size", 330, "model.embed_tokens.weight"],
  ["num_attention_heads", 6, "model.layers.0.self_attn"],
] as const)("a configuration whose %s does not fit the tensors is rejected", async ([field, value, tensor]) => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const broken = join(folder.path, "broken");
  await copyCheckpoint(checkpointFolder, broken, (header) => header, { [field]: value });
  await expect(buildFrom(broken, { cacheFolder: folder.path })).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining(tensor),
  });
});

test("float16 on cpu is rejected, and auto means float32 there", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("qwen2");
  const options = { cacheFolder: folder.path };
  await expect(buildFrom(checkpointFolder, { ...options, dtype: "float16" })).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining("float16"),
  });
  const automatic = await buildFrom(checkpointFolder, { ...options, dtype: "auto" });
  expect(automatic).toEqual(await buildFrom(checkpointFolder, { ...options, dtype: "float32" }));
  expect(automatic.decoder.kvElementType).toBe("float32");
  const onGpu = await buildFrom(checkpointFolder, { ...options, dtype: "auto", device: "webgpu" });
  expect(onGpu.decoder.kvElementType).toBe("float16");
});

test("a length above the checkpoint's is rejected with both numbers", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("qwen2");
  await expect(buildFrom(checkpointFolder, { cacheFolder: folder.path, maxModelLen: 513 })).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/513.*512/),
  });
});

test("the same checkpoint is built once, and another precision has another content hash", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llava-full");
  const first = await buildFrom(checkpointFolder, { cacheFolder: folder.path });
  const graphs = await readdir(join(folder.path, "graphs"));
  expect(await buildFrom(checkpointFolder, { cacheFolder: folder.path })).toEqual(first);
  expect(await readdir(join(folder.path, "graphs"))).toEqual(graphs);
  const quantised = await buildFrom(checkpointFolder, { cacheFolder: folder.path, dtype: "int8" });
  expect(quantised.contentHash).not.toBe(first.contentHash);
});

test.for([
  ["cuda", 'which cuda computes over a paged KV cache only; the KV layout is slots. Choose the KV layout "paged".'],
  ["webgpu", "which only the devices cpu and cuda compute; the device is webgpu."],
] as const)("recurrent layers over slots are refused on %s before anything is built", async ([device, reason]) => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("qwen3.5");
  await expect(buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype: "auto", device })).rejects.toThrow(
    `Qwen3_5ForCausalLM has layers with a recurrent state, ${reason}`,
  );
});
