/** Layers whose inputs are sorted by group (act-order): where activations are reordered, and where they need not be. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { externalDataFolder } from "../../../engine/graph/external-data.ts";
import { multiply } from "../../../engine/graph/standard-ops.ts";
import type { Value } from "../../../engine/graph/value.ts";
import { applyActivation } from "../../../engine/models/activation.ts";
import { gatedPerceptron } from "../../../engine/models/gated-perceptron.ts";
import { createGraphContext, type GraphContext, type Precision } from "../../../engine/models/graph-context.ts";
import { chainedLinear, jointLinear, linear, separate, type JointProjection } from "../../../engine/models/linear.ts";
import { createPreparedSource, WeightCollector, type WeightSource } from "../../../engine/models/weight-source.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { openCheckpoint, type Checkpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../engine/weights/prepare-weights.ts";
import { normalValues } from "../../support/checkpoints/dequantize.ts";
import { loadQuantisedCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { floatTensor, writeCheckpoint, type SafetensorsTensor } from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const size = 64;
const intermediateSize = 128;
const numTokens = 9;
const format = { kind: "plain", elementType: "float32" } as const;
const precision: Precision = {
  activations: "float32",
  linear: format,
  head: format,
  vision: format,
  keepsIntegers: true,
};

type Build = (context: GraphContext, input: Value) => Value;

function contextOf(weights: WeightSource): { readonly context: GraphContext; readonly input: Value } {
  const context = createGraphContext("part", { weights, precision, device: "cpu", kvLayout: { kind: "slots" } });
  return { context, input: context.graph.input("x", "float32", ["N", size]) };
}

function orderedInputs({ graph }: GraphContext): string[] {
  return graph.nodes.map(({ name }) => name).filter((name) => name.endsWith(".ordered"));
}

async function openFixture(name: string, cacheFolder: string): Promise<Checkpoint> {
  return openCheckpoint(loadQuantisedCheckpoint(name).checkpointFolder, { cacheFolder });
}

/** The output [numTokens, size] of a part of a model over random activations, and the activations that are reordered. */
async function compute(checkpoint: Checkpoint, cacheFolder: string, build: Build) {
  const collector = new WeightCollector(checkpoint.tensors);
  const imagined = contextOf(collector);
  build(imagined.context, imagined.input);
  const requests = [...collector.requests.values()];
  const prepared = await prepareWeights(checkpoint, requests, { cacheFolder, numThreads: 1 });
  const { context, input } = contextOf(createPreparedSource(prepared, checkpoint.tensors));
  const output = build(context, input);
  context.graph.output(output);
  const path = join(cacheFolder, "part.onnx");
  await writeFile(path, context.graph.encode());
  using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder });
  using binding = session.createBinding();
  const values = new Float32Array(numTokens * size);
  using x = Tensor.fromTypedArray("float32", normalValues(numTokens * size), [numTokens, size]);
  using y = Tensor.fromTypedArray("float32", values, [numTokens, size]);
  binding.bindInput("x", x);
  binding.bindOutput(output.name, y);
  binding.run();
  return { values, reordered: orderedInputs(context), numRequests: requests.length };
}

const layerOf = (name: string, inFeatures: number, outFeatures: number) => ({
  name,
  inFeatures,
  outFeatures,
  hasBias: false,
});

test.for(["gptq-act-order", "ct-w4a16-act-order"])(
  "%s: a perceptron whose down projection is act-ordered computes the same without reordering its activations",
  async (name) => {
    await using folder = await createTemporaryFolder();
    const checkpoint = await openFixture(name, folder.path);
    const mlp = "model.layers.0.mlp";
    const folded = await compute(checkpoint, folder.path, (context, input) =>
      gatedPerceptron(context, mlp, input, { size, intermediateSize, hasBias: false, activation: "silu", format }),
    );
    const gathered = await compute(checkpoint, folder.path, (context, input) => {
      const layers = ["gate_proj", "up_proj"].map((part) => layerOf(`${mlp}.${part}`, size, intermediateSize));
      const joint = jointLinear(context, `${mlp}.gate_up`, input, layers, format);
      const [gate, up] = separate(context.graph, "parts", joint, [intermediateSize, intermediateSize] as const);
      const gated = multiply(context.graph, "gated", applyActivation(context.graph, "activated", gate, "silu"), up);
      return linear(context, gated, layerOf(`${mlp}.down_proj`, intermediateSize, size), format);
    });
    expect(gathered.reordered).toEqual([`${mlp}.gate_up.ordered`, `${mlp}.down_proj.ordered`]);
    expect(folded.reordered).toEqual([`${mlp}.gate_up.ordered`]);
    expect(folded.numRequests).toBe(2);
    expect(folded.values.some((value) => value !== 0)).toBe(true);
    expect(folded.values).toEqual(gathered.values);
  },
);

/** A GPTQ matrix [rows, columns] of random codes in groups of 32, whose inputs are sorted by group or not. */
function gptqMatrix(module: string, [rows, columns]: readonly [number, number], isActOrdered: boolean) {
  const groups = columns / 32;
  const words = (part: string, shape: readonly [number, number]): SafetensorsTensor => {
    const bits = normalValues(shape[0] * shape[1], shape[0]);
    return { name: `${module}.${part}`, dtype: "I32", shape, bytes: new Uint8Array(bits.slice().buffer) };
  };
  const groupOf = (input: number): number => (isActOrdered ? (input * 7) % groups : Math.floor(input / 32));
  const groupIndex = new Uint8Array(Int32Array.from({ length: columns }, (_, input) => groupOf(input)).buffer);
  return [
    words("qweight", [columns / 8, rows]),
    words("qzeros", [groups, rows / 8]),
    floatTensor(`${module}.scales`, [groups, rows], new Float32Array(groups * rows).fill(0.01), "F16"),
    { name: `${module}.g_idx`, dtype: "I32", shape: [columns], bytes: groupIndex } satisfies SafetensorsTensor,
  ];
}

test("a fused gate and up projection is stored in the order of the down projection's inputs, each half by itself", async () => {
  await using folder = await createTemporaryFolder();
  const quantization = { quant_method: "gptq", bits: 4, group_size: 32, desc_act: true };
  await writeCheckpoint(folder.path, { quantization_config: quantization }, [
    ...gptqMatrix("gate_up", [2 * intermediateSize, size], false),
    ...gptqMatrix("down", [size, intermediateSize], true),
  ]);
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const joint = layerOf("gate_up", size, 2 * intermediateSize);
  const down = layerOf("down", intermediateSize, size);
  const gate = (context: GraphContext, projected: JointProjection): Value => {
    const [left, right] = separate(context.graph, "halves", projected, [intermediateSize, intermediateSize] as const);
    return multiply(context.graph, "gated", left, right);
  };
  const folded = await compute(checkpoint, folder.path, (context, input) =>
    chainedLinear(context, "gate_up", input, { first: [joint], second: down }, format, (projected) =>
      gate(context, projected),
    ),
  );
  const plain = await compute(checkpoint, folder.path, (context, input) => {
    const projected = linear(context, input, joint, format);
    return linear(context, gate(context, { kind: "packed", value: projected }), down, format);
  });
  expect([folded.reordered, plain.reordered]).toEqual([[], ["down.ordered"]]);
  expect(folded.values.some((value) => value !== 0)).toBe(true);
  expect(folded.values).toEqual(plain.values);
});

// As quantisers of real models write them, query, key and value of the first layer have one order. Those of the second
// do not.
test.for([
  ["model.layers.0.self_attn", ["q_proj.ordered"]],
  ["model.layers.1.self_attn", ["q_proj.ordered", "k_proj.ordered"]],
] as const)("layers of %s that are not one matrix share activations in the same order", async ([name, expected]) => {
  await using folder = await createTemporaryFolder();
  const checkpoint = await openFixture("gptq-act-order", folder.path);
  const { context, input } = contextOf(new WeightCollector(checkpoint.tensors));
  const widths = { q_proj: size, k_proj: size / 2, v_proj: size / 2 };
  const layers = Object.entries(widths).map(([part, width]) => layerOf(`${name}.${part}`, size, width));
  for (const layer of layers) linear(context, input, layer, format);
  expect(orderedInputs(context)).toEqual(expected.map((part) => `${name}.${part}`));
});

test("an act-ordered layer with another number of inputs than config.json implies is rejected by name", async () => {
  await using folder = await createTemporaryFolder();
  const checkpoint = await openFixture("gptq-act-order", folder.path);
  const collector = new WeightCollector(checkpoint.tensors);
  const { context, input } = contextOf(collector);
  linear(context, input, layerOf("model.layers.0.mlp.down_proj", size, size), format);
  await expect(
    prepareWeights(checkpoint, [...collector.requests.values()], { cacheFolder: folder.path, numThreads: 1 }),
  ).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: "Tensor model.layers.0.mlp.down_proj.weight has shape [64, 128]; config.json implies [64, 64].",
  });
});
