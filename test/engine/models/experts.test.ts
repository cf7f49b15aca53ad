/** Decoders with experts beside transformers' answers in float32, which hub-checkpoints.test.ts has. */
import { expect, test } from "vitest";

import type { NodeDefinition } from "../../../engine/graph/graph-builder.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import { modelCosts } from "../../../engine/models/model-costs.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { hubCases, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { loadQuantisedCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { floatTensor, writeCheckpoint } from "../../support/checkpoints/safetensors-writer.ts";
import { readSpoilable } from "../../support/checkpoints/spoil-checkpoint.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder, type TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom, type DirectBuildOptions } from "./direct-build.ts";
import { DirectDecoder } from "./direct-decoder.ts";
import { argmaxRows, decodeGolden, meanDivergence, relativeError } from "./golden-decoding.ts";

const name = "qwen3-moe";
const maxLength = 128;
const [{ promptTokenIds, greedyTokenIds, logprobs }] = hubCases(name) as [ReturnType<typeof hubCases>[number]];
const tokenIds = [...promptTokenIds, ...greedyTokenIds];

async function buildHub(folder: TemporaryFolder, options: Partial<DirectBuildOptions> = {}): Promise<BuiltModel> {
  await writeHubCheckpoint(name, "v4", folder.path);
  return buildFrom(folder.path, { cacheFolder: folder.path, maxModelLen: maxLength, ...options });
}

/** Logits of every token, computed in chunks. */
function logitsOf(model: BuiltModel, chunkSize: number): Float32Array {
  using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
  const rows: number[] = [];
  for (let start = 0; start < tokenIds.length; start += chunkSize) {
    const chunk = tokenIds.slice(start, start + chunkSize);
    rows.push(...decoder.run({ tokenIds: [chunk], numComputed: [start], logitRows: [...chunk.keys()] }));
  }
  return Float32Array.from(rows);
}

/** Nodes of the branches of these nodes. */
function branchesOf(nodes: readonly NodeDefinition[]): (readonly NodeDefinition[])[] {
  const attributes = nodes.flatMap(({ attributes = {} }) => Object.values(attributes));
  return attributes.flatMap((attribute) => (attribute.kind === "graph" ? [attribute.value.nodes] : []));
}

// Measured 0.001 with 8 bits and 0.08 with 4.
test.for([
  { dtype: "int8", maxDivergence: 0.005 },
  { dtype: "int4", maxDivergence: 0.5 },
] as const)("in $dtype stays close to float32", async ({ dtype, maxDivergence }) => {
  await using folder = await createTemporaryFolder();
  const exact = await buildHub(folder);
  const model = await buildHub(folder, { dtype });
  const logits = logitsOf(model, maxLength);
  const { vocabSize } = model.decoder;
  expect(meanDivergence(logitsOf(exact, maxLength), logits, vocabSize)).toBeLessThan(maxDivergence);
  const chunked = logitsOf(model, 1);
  expect(meanDivergence(logits, chunked, vocabSize)).toBeLessThan(0.01);
});

test("a chunk without rows of logits leaves the same cache as one with them", async () => {
  await using folder = await createTemporaryFolder();
  for (const dtype of ["float32", "int8", "int4"] as const) {
    const model = await buildHub(folder, { dtype });
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
    const numBefore = tokenIds.length - 1;
    const before = tokenIds.slice(0, numBefore);
    const last = { tokenIds: [tokenIds.slice(numBefore)], numComputed: [numBefore], logitRows: [0] };
    expect(decoder.run({ tokenIds: [before], numComputed: [0], logitRows: [] })).toHaveLength(0);
    const after = decoder.run(last);
    decoder.run({ tokenIds: [before], numComputed: [0], logitRows: [0, numBefore - 1] });
    expect(decoder.run(last)).toEqual(after);
  }
});

test("the experts of each layer are a graph of their own, so that loading takes time in proportion to layers", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v4", folder.path);
  const { config } = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const { buildDecoder } = configureGraphs(config, { dtype: "float32", device: "cpu", maxModelLen: maxLength });
  const { nodes } = buildDecoder(imaginedWeights).graph;
  expect(nodes.filter(({ operator }) => operator === "If")).toHaveLength(2);
  expect(nodes.filter((node) => /\.experts\.\d/.test(node.name))).toEqual([]);
});

test("in int8, a token is quantised once for all of its experts", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v4", folder.path);
  const { config } = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const { buildDecoder } = configureGraphs(config, { dtype: "int8", device: "cpu", maxModelLen: maxLength });
  const { nodes } = buildDecoder(imaginedWeights).graph;
  const quantised = branchesOf(nodes).map((branch) =>
    branch.filter(({ operator }) => operator === "QuantizeLinear").map(({ inputs }) => inputs[0]!.shape[1]),
  );
  // The branch with experts of each layer, which quantises 40 inner features, and the one without tokens.
  expect(quantised).toEqual([[40], [], [40], []]);
});

test("sequences that decode together have the logits that each has alone", async () => {
  await using folder = await createTemporaryFolder();
  const model = await buildHub(folder);
  using decoder = new DirectDecoder(model, { numSlots: 8, maxLength });
  const { vocabSize } = model.decoder;
  const starts = Array.from({ length: 8 }, (_, slot) => [tokenIds[slot]!]);
  const computed = starts.map(() => 0);
  const together = decoder.run({ tokenIds: starts, numComputed: computed, logitRows: [...starts.keys()] });
  for (const [slot, start] of starts.entries()) {
    const alone = decoder.run({ tokenIds: [start], numComputed: [0], logitRows: [0] });
    const row = together.subarray(slot * vocabSize, (slot + 1) * vocabSize);
    expect(relativeError(row, alone)).toBeLessThan(1e-5);
  }
});

// Experts one by one, in one tensor of a layer in either order of its axes, in FP8; beside shared experts, with a factor.
test.for([
  { family: "qwen3-moe", form: "v4" },
  { family: "qwen3-moe", form: "v5" },
  { family: "qwen3-vl-moe", form: "v4" },
  { family: "qwen3.5-moe", form: "v4" },
  { family: "qwen3.5-moe-fp8", form: "v4" },
  { family: "deepseek-ocr", form: "v4" },
  { family: "deepseek-ocr-2", form: "v5" },
  { family: "glm-4.5v", form: "v4" },
  { family: "glm-4.5", form: "v5" },
] as const)("ONNX Runtime's operator has the logits of $family in form $form", async ({ family, form }) => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(family, form, folder.path);
  const [recorded] = hubCases(family) as [ReturnType<typeof hubCases>[number]];
  const ids = [...recorded.promptTokenIds, ...recorded.greedyTokenIds];
  const rows = [...ids.keys()];
  const [byProducts, byOperator] = await Promise.all(
    [false, true].map(async (fusesExperts) => {
      const options = { cacheFolder: folder.path, maxModelLen: 512, fusesExperts };
      const model = await buildFrom(folder.path, options);
      using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 512 });
      return decoder.run({ tokenIds: [ids], numComputed: [0], logitRows: rows });
    }),
  );
  expect(relativeError(byOperator!, byProducts!)).toBeLessThan(1e-5);
});

test.for(["awq-experts", "gptq-act-order-experts", "ct-w8a8-experts"])(
  "ONNX Runtime's operator has the logits of dequantised experts of %s",
  async (quantised) => {
    await using folder = await createTemporaryFolder();
    const { checkpointFolder, golden } = loadQuantisedCheckpoint(quantised);
    const options = { cacheFolder: folder.path, fusesExperts: true };
    const model = await buildFrom(checkpointFolder, options);
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
    expect(relativeError(decodeGolden(decoder, model, golden, maxLength), golden.logits)).toBeLessThan(1e-5);
  },
);

test("a router that the checkpoint quantises is computed in floats, beside experts that keep their integers", async () => {
  const { config, tensors } = await readSpoilable("ct-w4a16-experts");
  const [numExperts, size] = [8, 64];
  const codes = Array.from({ length: numExperts * size }, (_, index) => Math.imul(index, 2654435761) >>> 28);
  const words = Uint32Array.from({ length: codes.length / 8 }, (_, word) =>
    codes.slice(8 * word, 8 * word + 8).reduceRight((bits, code) => bits * 16 + code, 0),
  );
  const scale = 1 / 32;
  const routers = {
    quantised: (name: string) => [
      {
        name: `${name}.weight_packed`,
        dtype: "I32",
        shape: [numExperts, 8],
        bytes: new Uint8Array(words.buffer),
      } as const,
      floatTensor(`${name}.weight_scale`, [numExperts, 2], Array<number>(2 * numExperts).fill(scale), "BF16"),
    ],
    stored: (name: string) => [
      floatTensor(
        `${name}.weight`,
        [numExperts, size],
        codes.map((code) => (code - 8) * scale),
      ),
    ],
  };
  const logits = [];
  for (const router of Object.values(routers)) {
    await using folder = await createTemporaryFolder();
    const others = [...tensors.values()].filter((tensor) => !/\.mlp\.gate\./.test(tensor.name));
    const own = [0, 1].flatMap((layer) => router(`model.layers.${layer}.mlp.gate`));
    await writeCheckpoint(folder.path, config, [...others, ...own]);
    const model = await buildFrom(folder.path, { cacheFolder: folder.path, dtype: "auto" });
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
    const ids = codes.slice(0, 40).map((code, index) => 2 + code + index);
    logits.push(decoder.run({ tokenIds: [ids], numComputed: [0], logitRows: [...ids.keys()] }));
  }
  expect(logits[0]).toEqual(logits[1]);
});

test("ONNX Runtime's operator has transformers' tokens and logprobs, in chunks and beside a chunk without rows of logits", async () => {
  await using folder = await createTemporaryFolder();
  const model = await buildHub(folder, { fusesExperts: true });
  const { vocabSize } = model.decoder;
  const logits = logitsOf(model, 5);
  const answered = logits.subarray((promptTokenIds.length - 1) * vocabSize, (tokenIds.length - 1) * vocabSize);
  expect(argmaxRows(answered, vocabSize)).toEqual(greedyTokenIds);
  for (const [index, token] of greedyTokenIds.entries()) {
    const row = answered.subarray(index * vocabSize, (index + 1) * vocabSize);
    const sum = row.reduce((total, value) => total + Math.exp(value), 0);
    expect(row[token]! - Math.log(sum)).toBeCloseTo(logprobs[index]!, 4);
  }

  using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
  const numBefore = tokenIds.length - 1;
  decoder.run({ tokenIds: [tokenIds.slice(0, numBefore)], numComputed: [0], logitRows: [] });
  const last = { tokenIds: [tokenIds.slice(numBefore)], numComputed: [numBefore], logitRows: [0] };
  expect(relativeError(decoder.run(last), logits.subarray(numBefore * vocabSize))).toBeLessThan(1e-5);
});

test.for(["bfloat16", "float16"] as const)(
  "experts are float16 in %s on cuda, one tensor of a layer",
  async (dtype) => {
    await using folder = await createTemporaryFolder();
    await writeHubCheckpoint(name, "v4", folder.path);
    const { config } = await openCheckpoint(folder.path, { cacheFolder: folder.path });
    const { buildDecoder } = configureGraphs(config, { dtype, device: "cuda", maxModelLen: maxLength });
    const { nodes } = buildDecoder(imaginedWeights).graph;
    const mixtures = nodes.filter(({ operator }) => operator === "MoE");
    const shapes = mixtures.map(({ inputs }) =>
      inputs.flatMap((value) => (value === null ? [] : [`${value.elementType} ${value.shape.join(" ")}`])),
    );
    expect(shapes.map((ofLayer) => ofLayer.slice(2))).toEqual(
      mixtures.map(() => ["float16 6 80 64", "float16 6 64 40"]),
    );
    expect(mixtures).toHaveLength(2);
  },
);

test("sizing for cuda counts all experts in 16 bits, and those that a token reads", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v4", folder.path);
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const options = { dtype: "bfloat16", device: "cuda", maxModelLen: maxLength } as const;
  const { experts, weights } = modelCosts(checkpoint, configureGraphs(checkpoint.config, options));
  // 2 layers of 6 experts with 3 * 64 * 40 weights of 2 bytes; a token reads 2 of 6.
  expect(experts).toEqual({ all: 2 * 6 * 3 * 64 * 40 * 2, perToken: 2 * 2 * 3 * 64 * 40 * 2 });
  expect(weights.decoder).toBeGreaterThan(experts!.all);
});

test.for([
  ["qwen3-moe", "webgpu", "auto", "has a mixture of experts, which only the devices cpu and cuda compute"],
  [
    "qwen3-moe",
    "cuda",
    "int8",
    "has a mixture of experts, which cuda computes in bfloat16 and float16; the dtype is int8",
  ],
  [
    "qwen3-moe",
    "cuda",
    "int4",
    "has a mixture of experts, which cuda computes in bfloat16 and float16; the dtype is int4",
  ],
  ["gemma4-26b", "cuda", "auto", "has a mixture of experts with GELU and factors, which only the device cpu computes"],
] as const)(
  "experts of %s on %s in %s are refused before anything is built",
  async ([family, device, dtype, reason]) => {
    await using folder = await createTemporaryFolder();
    await writeHubCheckpoint(family, "v4", folder.path);
    const options = { cacheFolder: folder.path, maxModelLen: maxLength, dtype, device } as const;
    await expect(buildFrom(folder.path, options)).rejects.toThrow(reason);
  },
);
