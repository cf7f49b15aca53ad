import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { multiply, relu } from "../../../engine/graph/standard-ops.ts";
import type { KvLayout } from "../../../engine/models/built-model.ts";
import { configureGraphs, type ModelGraphs } from "../../../engine/models/model-graphs.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { nodesWithoutCudaKernel } from "../../gpu/cuda-kernels.ts";
import { goldensFolder } from "../../support/goldens.ts";

const paged: KvLayout = { kind: "paged", blockSize: 256 };

/** Sizes that the fused kernels of quantised weights take; the golden checkpoints are smaller than a tile. */
const wide = {
  hidden_size: 256,
  intermediate_size: 512,
  num_attention_heads: 4,
  head_dim: 64,
  vocab_size: 512,
} as const;
const grouped = { ...wide, num_key_value_heads: 2 } as const;
const { head_dim: _, ...wideWithoutHead } = wide;

const families = [
  { name: "llama", sizes: grouped },
  { name: "mistral", sizes: grouped },
  { name: "qwen2", sizes: grouped },
  { name: "llava-default", sizes: grouped },
  { name: "llava-siglip", sizes: grouped },
  { name: "smolvlm", sizes: grouped },
  // Its vision tower gives rows of the decoder's own width.
  { name: "qwen2-vl", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "fuyu", sizes: wideWithoutHead },
] as const;

async function configOf(name: string, sizes: Readonly<Record<string, unknown>> = {}): Promise<unknown> {
  const config = JSON.parse(await readFile(join(goldensFolder, name, "config.json"), "utf8")) as Record<
    string,
    unknown
  >;
  const text = config.text_config as Record<string, unknown> | undefined;
  return text === undefined ? { ...config, ...sizes } : { ...config, text_config: { ...text, ...sizes } };
}

function unservedNodes(graphs: ModelGraphs): { readonly decoder: string[]; readonly vision: string[] } {
  const vision = graphs.buildVisionEncoder(imaginedWeights);
  return {
    decoder: nodesWithoutCudaKernel(graphs.buildDecoder(imaginedWeights).graph),
    vision: vision === null ? [] : nodesWithoutCudaKernel(vision.graph),
  };
}

const layouts: readonly KvLayout[] = [paged, { kind: "slots" }];

describe.for(families)("$name on cuda", ({ name, sizes }) => {
  test.for(
    layouts.flatMap((kvLayout) =>
      (["bfloat16", "float16", "int8", "int4"] as const).map((dtype) => ({ kvLayout, dtype })),
    ),
  )("has a kernel for every node in $dtype over $kvLayout.kind", async ({ kvLayout, dtype }) => {
    const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout } as const;
    const graphs = configureGraphs(await configOf(name, sizes), options);
    expect(unservedNodes(graphs)).toEqual({ decoder: [], vision: [] });
  });

  test("gives capture nothing that depends on shapes", async () => {
    const options = { dtype: "bfloat16", device: "cuda", maxModelLen: 64, kvLayout: paged } as const;
    const { graph } = configureGraphs(await configOf(name, sizes), options).buildDecoder(imaginedWeights);
    const operators = new Set(graph.nodes.map(({ operator }) => operator));
    expect([...operators].filter((operator) => ["Shape", "Range", "NonZero", "Expand"].includes(operator))).toEqual([]);
    expect(graph.nodes.filter(({ operator }) => operator === "PagedAttention")).toHaveLength(
      2 + Number(name === "llama"),
    );
  });
});

test.for(["bfloat16", "float16"] as const)(
  "heads of 24 have kernels in %s, rotated before attention",
  async (dtype) => {
    const options = { dtype, device: "cuda", maxModelLen: 64, kvLayout: paged } as const;
    const graphs = configureGraphs(await configOf("llama"), options);
    expect(unservedNodes(graphs)).toEqual({ decoder: [], vision: [] });
    const { graph } = graphs.buildDecoder(imaginedWeights);
    expect(graph.nodes.filter(({ operator }) => operator === "RotaryEmbedding")).toHaveLength(2 * 3);
  },
);

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
