/** Products of 8-bit weights: their numbers, and the nodes that they take. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { DeviceName, DtypeName } from "../../../engine/contract/config.ts";
import type { NodeDefinition } from "../../../engine/graph/graph-builder.ts";
import { createGraphContext, logitRows } from "../../../engine/models/graph-context.ts";
import { int8Product } from "../../../engine/models/int8-product.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const float32 = { kind: "plain", elementType: "float32" } as const;
const features = 8;
const outputs = 3;
const weight = Array.from({ length: features * outputs }, (_, index) => ((index * 37) % 255) - 127);
const scales = [0.5, 0.25, 2];

/** The products of `rows` [numRows, features], in float32. */
async function productsOf(rows: readonly number[]): Promise<Float32Array> {
  await using folder = await createTemporaryFolder();
  const context = createGraphContext("product", {
    weights: imaginedWeights,
    precision: { activations: "float32", linear: float32, head: float32, vision: float32 },
    device: "cpu",
    kvLayout: { kind: "slots" },
  });
  const { graph } = context;
  const product = int8Product(context, "product", graph.input("x", "float32", [logitRows, features]), {
    weight: graph.constant("weight", "int8", [features, outputs], weight),
    scales: graph.constant("scales", "float32", [outputs], scales),
  });
  graph.output(product);
  const path = join(folder.path, "product.onnx");
  await writeFile(path, graph.encode());
  using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder: undefined });
  using binding = session.createBinding();
  const numRows = rows.length / features;
  const values = new Float32Array(numRows * outputs);
  using x = Tensor.fromTypedArray("float32", Float32Array.from(rows), [numRows, features]);
  using y = Tensor.fromTypedArray("float32", values, [numRows, outputs]);
  binding.bindInput("x", x);
  binding.bindOutput("product", y);
  binding.run();
  return values;
}

test("a row has a scale of its own, and rows of zeros and runs without rows are allowed", async () => {
  const row = [127, -64, 32, 16, -8, 4, 2, -1];
  const expected = scales.map(
    (scale, output) => scale * row.reduce((sum, value, at) => sum + value * weight[at * outputs + output]!, 0),
  );
  const small = expected.map((value) => Math.fround(value / 1024));
  // All scales are powers of two times 1, so that nothing is rounded.
  const zeros = row.map(() => 0);
  expect([...(await productsOf([...row, ...row.map((value) => value / 1024), ...zeros]))]).toEqual([
    ...expected,
    ...small,
    0,
    0,
    0,
  ]);
  expect(await productsOf(row)).toHaveLength(outputs);
  expect(await productsOf([])).toHaveLength(0);
});

const config = { architectures: ["LlamaForCausalLM"], num_hidden_layers: 1 };

function nodesOf(dtype: DtypeName, device: DeviceName): readonly NodeDefinition[] {
  const graphs = configureGraphs(config, { dtype, device, maxModelLen: 128 });
  return graphs.buildDecoder(imaginedWeights).graph.nodes;
}

test("a gated perceptron quantises its input once, and its outputs are not copied apart", () => {
  const inPerceptron = nodesOf("int8", "cpu").filter(({ name }) => name.includes(".mlp."));
  const kinds = inPerceptron.map(({ operator }) => operator);
  expect(kinds.filter((operator) => operator === "QuantizeLinear")).toHaveLength(2);
  expect(kinds.filter((operator) => operator === "MatMulIntegerToFloat")).toHaveLength(3);
  expect(kinds).not.toContain("Split");
});

test.for<[DeviceName, DtypeName, string]>([
  ["cpu", "float32", "SimplifiedLayerNormalization"],
  ["cuda", "float16", "SkipSimplifiedLayerNormalization"],
])("on %s the norms of a layer's residual stream are, in %s, %s", ([device, dtype, operator]) => {
  const norms = nodesOf(dtype, device).filter(({ name }) => /^model\.layers\.0\..*layernorm$/.test(name));
  expect(norms.map((node) => node.operator)).toContain(operator);
});
