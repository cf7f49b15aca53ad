import { describe, expect, test } from "vitest";

import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { multiply, relu } from "../../../engine/graph/standard-ops.ts";
import type { KvLayout } from "../../../engine/models/built-model.ts";
import { configureGraphs, type ModelGraphs } from "../../../engine/models/model-graphs.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { cudaDtypes, cudaFamilies, familyConfig } from "../../gpu/cuda-families.ts";
import { nodesWithoutCudaKernel } from "../../gpu/cuda-kernels.ts";

const paged: KvLayout = { kind: "paged", blockSize: 256 };

function unservedNodes(graphs: ModelGraphs): { readonly decoder: string[]; readonly vision: string[] } {
  const vision = graphs.buildVisionEncoder(imaginedWeights);
  return {
    decoder: nodesWithoutCudaKernel(graphs.buildDecoder(imaginedWeights).graph),
    vision: vision === null ? [] : nodesWithoutCudaKernel(vision.graph),
  };
}

const layouts: readonly KvLayout[] = [paged, { kind: "slots" }];

describe.for(cudaFamilies)("$name on cuda", (family) => {
  test.for(layouts.flatMap((kvLayout) => cudaDtypes.map((dtype) => ({ kvLayout, dtype }))))(
    "has a kernel for every node in $dtype over $kvLayout.kind",
    async ({ kvLayout, dtype }) => {
      const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout } as const;
      const graphs = configureGraphs(await familyConfig(family), options);
      expect(unservedNodes(graphs)).toEqual({ decoder: [], vision: [] });
    },
  );

  test("gives capture nothing that depends on shapes", async () => {
    const options = { dtype: "bfloat16", device: "cuda", maxModelLen: 64, kvLayout: paged } as const;
    const { graph } = configureGraphs(await familyConfig(family), options).buildDecoder(imaginedWeights);
    const operators = new Set(graph.nodes.map(({ operator }) => operator));
    expect([...operators].filter((operator) => ["Shape", "Range", "NonZero", "Expand"].includes(operator))).toEqual([]);
    expect(graph.nodes.filter(({ operator }) => operator === "PagedAttention")).toHaveLength(
      2 + Number(["llama", "qwen3", "../hub/qwen3-vl/v4"].includes(family.name)),
    );
  });
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
