import { describe, expect, test } from "vitest";

import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import type { AttributeValue } from "../../../engine/graph/graph-builder.ts";
import { multiply, relu } from "../../../engine/graph/standard-ops.ts";
import type { KvLayout } from "../../../engine/models/built-model.ts";
import { layersOf } from "../../../engine/models/decoder-shape.ts";
import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import type { ModelGraphs } from "../../../engine/models/model-graphs.ts";
import { imaginedWeights, WeightCollector, type WeightSource } from "../../../engine/models/weight-source.ts";
import { withNamedAdapters } from "../../../engine/weights/adapters/adapter-set.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { cudaDtypes, cudaFamilies, cudaLayouts, familyConfig } from "../../gpu/cuda-families.ts";
import { nodesWithoutCudaKernel } from "../../gpu/cuda-kernels.ts";
import { chosenAdapter, chosenAdapters, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { loadQuantisedCheckpoint, quantisedCheckpoints } from "../../support/checkpoints/quantised-checkpoints.ts";
import {
  resolveKvPrecision,
  configureGraphs,
  resolvePromptDtype,
  findModelDefinition,
  modelDefinitions,
} from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const [paged] = cudaLayouts as [KvLayout];

function unservedNodes(
  graphs: ModelGraphs,
  weights: WeightSource = imaginedWeights,
): { readonly decoder: string[]; readonly vision: string[] } {
  const vision = graphs.buildVisionEncoder(weights);
  return {
    decoder: nodesWithoutCudaKernel(graphs.buildDecoder(weights).graph),
    vision: vision === null ? [] : nodesWithoutCudaKernel(vision.graph),
  };
}

/** Of each attention: the query heads that share keys and values, and the scale of the cache. */
function describeFp8(graphs: ModelGraphs) {
  try {
    const { graph } = graphs.buildDecoder(imaginedWeights);
    const attentions = graph.nodes.filter(({ operator }) => operator === "PagedAttention");
    const int = (attribute: AttributeValue | undefined): number => (attribute?.kind === "int" ? attribute.value : NaN);
    return {
      unserved: nodesWithoutCudaKernel(graph),
      groupSizes: attentions.map(({ attributes }) => int(attributes?.num_heads) / int(attributes?.kv_num_heads)),
      scales: attentions.map(({ inputs }) => inputs[14]),
    };
  } catch (error) {
    return { unserved: (error as Error).message, groupSizes: [], scales: [] };
  }
}

describe.for(cudaFamilies)("$name on cuda", (family) => {
  const { dtypes = cudaDtypes, layouts = cudaLayouts } = family;

  test.for(layouts.flatMap((kvLayout) => dtypes.map((dtype) => ({ kvLayout, dtype }))))(
    "has a kernel for every node in $dtype over $kvLayout.kind",
    async ({ kvLayout, dtype }) => {
      const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout } as const;
      const graphs = configureGraphs(await familyConfig(family), options);
      expect(unservedNodes(graphs)).toEqual({ decoder: [], vision: [] });
      // CUDA has kernels for these, but they wait for the host, and no graph with them is captured. The CPU's graphs have
      // them for prompts beside 8-bit keys and values, and beside 4-bit weights.
      const { nodes } = graphs.buildDecoder(imaginedWeights).graph;
      expect(nodes.filter(({ operator }) => ["If", "Loop", "Scan"].includes(operator))).toEqual([]);
    },
  );

  test.for(layouts.filter(({ kind }) => kind === "paged"))(
    "has kernels for a cache of 8-bit floats, or rejects it for its heads",
    async ({ kind }) => {
      for (const dtype of dtypes) {
        const kvLayout = { kind, blockSize: 128 } as KvLayout;
        const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout, kvPrecision: { kind: "fp8" } } as const;
        const graphs = configureGraphs(await familyConfig(family), options);
        expect(graphs.kvElementType).toBe("float8e4m3");
        const fits = layersOf(graphs.model.decoder).every(({ headDim }) => [64, 128, 256].includes(headDim));
        const { unserved, groupSizes, scales } = describeFp8(graphs);
        expect(String(unserved)).toMatch(fits ? /^$/ : "An FP8 KV cache is for heads of 64, 128 or 256 numbers");
        expect(groupSizes.filter((size) => ![4, 6, 8, 16, 32].includes(size))).toEqual([]);
        expect(scales.every((scale) => scale?.elementType === "float32")).toBe(true);
      }
    },
  );

  test.for(layouts.filter(({ kind }) => kind === "paged"))(
    "gives capture nothing that depends on shapes",
    async (kvLayout) => {
      const options = { dtype: "bfloat16", device: "cuda", maxModelLen: 64, kvLayout } as const;
      const { buildDecoder, model } = configureGraphs(await familyConfig(family), options);
      const { graph } = buildDecoder(imaginedWeights);
      const operators = new Set(graph.nodes.map(({ operator }) => operator));
      expect([...operators].filter((operator) => ["Shape", "Range", "NonZero", "Expand"].includes(operator))).toEqual(
        [],
      );
      const attentions = graph.nodes.filter(({ operator }) => operator === "PagedAttention");
      const { numLayers, kvReaders = [] } = model.decoder;
      expect(attentions).toHaveLength(numLayers + kvReaders.length);
    },
  );
});

test("forms of prompts for the CPU are refused on cuda, and not chosen by themselves", () => {
  const checkpoint = { onnxFileNames: null, tensors: new Map(), config: {} };
  for (const kvLayout of cudaLayouts) {
    const settings = { dtype: "int4", device: "cuda" } as const;
    const form = { layout: kvLayout, precision: { kind: "activations" } } as const;
    expect(resolvePromptDtype(settings, form, checkpoint, 2 ** 40)).toBe("none");
    expect(resolveKvPrecision(settings, kvLayout, { onnxFileNames: null })).toEqual({ kind: "activations" });
    expect(() => resolvePromptDtype({ ...settings, promptDtype: "int8" }, form, checkpoint, 2 ** 40)).toThrow(
      "are for the device cpu; the device is cuda",
    );
    expect(() => resolveKvPrecision({ ...settings, kvCacheDtype: "int8" }, kvLayout, checkpoint)).toThrow(
      `The KV cache of the KV layout "${kvLayout.kind}" on cuda has no int8`,
    );
  }
});

test("every architecture that cuda takes is among these families", async () => {
  const shown = new Set<string>();
  for (const family of cudaFamilies) {
    shown.add(describeArchitecture(findModelDefinition(await familyConfig(family))));
  }
  const all = modelDefinitions.map(describeArchitecture);
  expect([...shown].sort()).toEqual([...new Set(all)].sort());
});

function describeArchitecture({
  architecture,
  towerType,
}: Pick<ModelDefinition, "architecture" | "towerType">): string {
  return towerType === undefined ? architecture : `${architecture} of ${towerType}`;
}

describe.for(cudaLayouts)("over $kind", (kvLayout) => {
  test.for(quantisedCheckpoints)("the checkpoint %s has a kernel for every node on cuda", async (name) => {
    await using cache = await createTemporaryFolder();
    const checkpoint = await openCheckpoint(loadQuantisedCheckpoint(name).checkpointFolder, {
      cacheFolder: cache.path,
    });
    const options = { dtype: "auto", device: "cuda", maxModelLen: 64, kvLayout } as const;
    const graphs = configureGraphs(checkpoint.config, options);
    const weights = new WeightCollector(checkpoint.tensors);
    expect(unservedNodes(graphs, weights)).toEqual({ decoder: [], vision: [] });
    const { nodes } = graphs.buildDecoder(weights).graph;
    const keepsIntegers = nodes.some(({ operator }) => operator === "MatMulNBits");
    // Floats in 8 and 4 bits, and those of bitsandbytes, are dequantised.
    expect(keepsIntegers).toBe(!/fp[48]|bnb|modelopt/.test(name));
  });
});

test("adapters have kernels for every node, and give capture nothing that depends on shapes", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(chosenAdapters.model, "v5", folder.path);
  const options = { cacheFolder: folder.path };
  const adapters = new Map(chosenAdapters.names.map((name) => [name, chosenAdapter(name)]));
  const checkpoint = await withNamedAdapters(await openCheckpoint(folder.path, options), adapters, options);
  const form = { dtype: "bfloat16", device: "cuda", maxModelLen: 64, kvLayout: paged } as const;
  const weights = new WeightCollector(checkpoint.tensors, checkpoint.adapters);
  const graphs = configureGraphs(checkpoint.config, form);
  expect(unservedNodes(graphs, weights)).toEqual({ decoder: [], vision: [] });
  const { nodes } = graphs.buildDecoder(weights).graph;
  const ofAdapters = nodes.filter(({ name }) => /\.adapters\.|^adapters\./.test(name));
  expect(new Set(ofAdapters.map(({ operator }) => operator))).toEqual(new Set(["Gather", "Gemm", "Mul"]));
});

test.for(
  [
    // Heads of 24.
    { name: "llama", numLayers: 3 },
    // 8 dimensions of heads of 16.
    { name: "fuyu", numLayers: 2 },
  ].flatMap((family) => (["bfloat16", "float16"] as const).map((dtype) => Object.assign({ dtype }, family))),
)("rotates the heads of $name in $dtype before attention, which cannot", async ({ name, numLayers, dtype }) => {
  const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout: paged } as const;
  const graphs = configureGraphs(await familyConfig({ name, sizes: {} }), options);
  expect(unservedNodes(graphs)).toEqual({ decoder: [], vision: [] });
  const { graph } = graphs.buildDecoder(imaginedWeights);
  expect(graph.nodes.filter(({ operator }) => operator === "RotaryEmbedding")).toHaveLength(2 * numLayers);
});

test("finds nodes without a kernel: another type, and an operator that only other providers have", () => {
  const graph = new GraphBuilder("unserved");
  const left = graph.input("left", "bool", [2]);
  multiply(graph, "product", left, left);
  relu(graph, "rectified", graph.input("right", "float16", [2]));
  graph.addNode({
    name: "drawn",
    operator: "Multinomial",
    domain: "",
    inputs: [graph.input("logits", "float16", [2, 2])],
    outputs: [{ name: "drawn", elementType: "int32", shape: [2, 1] }],
  });
  expect(nodesWithoutCudaKernel(graph)).toEqual([
    'product: Mul 14: no kernel for {"A":"bool","T":"bool","B":"bool","C":"bool"}',
    "drawn: Multinomial: no kernel of any type",
  ]);
});
