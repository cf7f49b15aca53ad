import { cp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { decodeModel } from "../../../engine/graph/onnx-schema.ts";
import type { GraphOptions } from "../../../engine/models/model-graphs.ts";
import { resolveDtype } from "../../../engine/models/precision.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { readSafetensorsHeader } from "../../../engine/weights/safetensors.ts";
import { goldensFolder, loadGoldens } from "../../support/checkpoints/goldens.ts";
import { floatTensor, writeSafetensors } from "../../support/checkpoints/safetensors-writer.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";

test.for([
  { config: { dtype: "bfloat16" }, device: "cuda", resolved: "bfloat16" },
  { config: { torch_dtype: "bfloat16" }, device: "cuda", resolved: "bfloat16" },
  { config: { text_config: { dtype: "bfloat16" } }, device: "cuda", resolved: "bfloat16" },
  { config: { torch_dtype: "float16" }, device: "cuda", resolved: "float16" },
  // Attention on cuda has no float32.
  { config: { torch_dtype: "float32" }, device: "cuda", resolved: "float16" },
  { config: { dtype: "float16", text_config: { dtype: "bfloat16" } }, device: "cuda", resolved: "float16" },
  { config: {}, device: "cuda", resolved: "float16" },
  { config: { dtype: "bfloat16" }, device: "webgpu", resolved: "float16" },
  { config: { dtype: "bfloat16" }, device: "cpu", resolved: "float32" },
] as const)("auto of $config is $resolved on $device", ({ config, device, resolved }) => {
  expect(resolveDtype({ dtype: "auto", device, config })).toBe(resolved);
});

async function configOf(name: string): Promise<unknown> {
  return JSON.parse(await readFile(join(goldensFolder, name, "config.json"), "utf8"));
}

const refusals: readonly {
  readonly claim: string;
  readonly options: Partial<GraphOptions>;
  readonly message: RegExp;
}[] = [
  {
    claim: "float32 on cuda",
    options: { dtype: "float32" },
    message: /dtype float32 is not for cuda.*bfloat16, float16/,
  },
  { claim: "bfloat16 on cpu", options: { dtype: "bfloat16", device: "cpu" }, message: /bfloat16 is not for cpu/ },
  {
    claim: "bfloat16 on webgpu",
    options: { dtype: "bfloat16", device: "webgpu" },
    message: /bfloat16 is not for webgpu/,
  },
  {
    claim: "blocks on webgpu",
    options: { dtype: "float16", device: "webgpu", kvLayout: { kind: "paged", blockSize: 256 } },
    message: /paged KV cache is for cuda and cpu/,
  },
  {
    claim: "blocks of 8 on cuda",
    options: { kvLayout: { kind: "paged", blockSize: 8 } },
    message: /power of two from 16 on; it is 8/,
  },
  {
    claim: "blocks of 48 on cuda",
    options: { kvLayout: { kind: "paged", blockSize: 48 } },
    message: /power of two from 16 on; it is 48/,
  },
  {
    claim: "blocks of no token",
    options: { device: "cpu", dtype: "float32", kvLayout: { kind: "paged", blockSize: 0 } },
    message: /at least one token; the block size is 0/,
  },
];

test.for(refusals)("refuses $claim", async ({ options, message }) => {
  const config = await configOf("llama");
  const build = () => configureGraphs(config, { dtype: "bfloat16", device: "cuda", maxModelLen: 64, ...options });
  expect(build).toThrow(
    expect.objectContaining({ code: "invalid_configuration", message: expect.stringMatching(message) }),
  );
});

test.for([
  ["int4", /weights of 4 bits .* of 64 outputs; model.layers.0.self_attn.qkv has 51 inputs and 120 outputs/],
  ["int8", /weights of 8 bits .* of 32 outputs; model.layers.0.self_attn.qkv has 51 inputs and 120 outputs/],
] as const)("%s on cuda refuses a layer that the fused kernels do not take, by name", async ([dtype, message]) => {
  const graphs = configureGraphs(await configOf("llama"), { dtype, device: "cuda", maxModelLen: 64 });
  expect(() => graphs.buildDecoder(imaginedWeights)).toThrow(message);
});

test("on cuda, quantised layers with biases add them behind the product", async () => {
  const config = { ...((await configOf("qwen2")) as object), intermediate_size: 128, vocab_size: 512 };
  const options = {
    dtype: "int4",
    device: "cuda",
    maxModelLen: 64,
    kvLayout: { kind: "paged", blockSize: 256 },
  } as const;
  const { graph } = configureGraphs({ ...config, num_key_value_heads: 4 }, options).buildDecoder(imaginedWeights);
  const products = graph.nodes.filter(({ operator }) => operator === "MatMulNBits");
  expect(products.length).toBeGreaterThan(0);
  for (const { inputs, attributes } of products) {
    expect(inputs).toHaveLength(3);
    expect(inputs[0]?.elementType).toBe("float16");
    expect(attributes).toMatchObject({ block_size: { value: 32 }, accuracy_level: { value: 0 } });
  }
  const biased = graph.nodes.filter(({ operator, inputs }) => operator === "Add" && inputs[1]?.name.endsWith(".bias"));
  expect(biased).toHaveLength(2);
  // ONNX Runtime would put a bias of one dimension back into the product, which the fused kernels do not take then.
  for (const { inputs } of biased) expect(inputs[1]!.shape).toEqual([1, 128]);
});

test("a bfloat16 checkpoint is mapped as it is, and nothing is converted", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const file = join(checkpointFolder, "model.safetensors");
  const bytes = await readFile(file);
  const tensors = [...(await readSafetensorsHeader(file))!.values()].map(({ name, shape, byteOffset, byteLength }) => {
    const values = new Float32Array(bytes.buffer.slice(bytes.byteOffset + byteOffset).slice(0, byteLength));
    return floatTensor(name, shape, values, "BF16");
  });
  const copy = join(folder.path, "copy");
  await cp(checkpointFolder, copy, { recursive: true });
  await writeSafetensors(join(copy, "model.safetensors"), tensors);
  const cacheFolder = join(folder.path, "cache");
  const model = await buildFrom(copy, {
    cacheFolder,
    dtype: "bfloat16",
    device: "cuda",
    kvLayout: { kind: "paged", blockSize: 256 },
  });
  expect(model.decoder).toMatchObject({ kvElementType: "bfloat16", kvLayout: { kind: "paged", blockSize: 256 } });
  const { graph } = decodeModel(await readFile(model.decoder.path));
  const external = graph.initializer.filter(
    ({ externalData }) => externalData !== undefined && externalData.length > 0,
  );
  expect(external.length).toBeGreaterThan(tensors.length / 2);
  const bfloat16 = 16;
  for (const { dataType, externalData } of external) {
    expect(dataType).toBe(bfloat16);
    expect(externalData!.find(({ key }) => key === "location")!.value).toContain("copy/model.safetensors");
  }
});
