/** Norms of the residual stream: their numbers, and the nodes that each device gets. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { DeviceName, DtypeName } from "../../../engine/contract/config.ts";
import { addAndNormalise } from "../../../engine/models/rms-norm.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createFloatContext } from "../../support/engine/float-context.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const size = 4;
const weight = [1, 0.5, -2, 3];
const epsilon = 1e-5;

test("the sum is returned with its norm, also of no rows", async () => {
  await using folder = await createTemporaryFolder();
  const context = createFloatContext("norm");
  const { graph } = context;
  const { normalised, sum } = addAndNormalise(context, "norm", {
    input: graph.input("input", "float32", ["N", size]),
    skip: graph.input("skip", "float32", ["N", size]),
    weight: graph.constant("weight", "float32", [size], weight),
    epsilon,
  });
  for (const value of [normalised, sum]) graph.output(value);
  const path = join(folder.path, "norm.onnx");
  await writeFile(path, graph.encode());
  using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder: undefined });
  using binding = session.createBinding();
  const compute = (input: readonly number[], skip: readonly number[]): readonly Float32Array[] => {
    const shape = [input.length / size, size];
    using inputTensor = Tensor.fromTypedArray("float32", Float32Array.from(input), shape);
    using skipTensor = Tensor.fromTypedArray("float32", Float32Array.from(skip), shape);
    const outputs = [normalised, sum].map(({ name }) => ({ name, values: new Float32Array(input.length) }));
    binding.bindInput("input", inputTensor);
    binding.bindInput("skip", skipTensor);
    const tensors = outputs.map(({ name, values }) => {
      const tensor = Tensor.fromTypedArray("float32", values, shape);
      binding.bindOutput(name, tensor);
      return tensor;
    });
    binding.run();
    for (const tensor of tensors) tensor[Symbol.dispose]();
    return outputs.map(({ values }) => values);
  };

  const [norm, total] = compute([1, 2, 3, 4, 0, 0, 0, 0], [0, -1, 1, 4, 0, 0, 0, 0]);
  expect([...total!]).toEqual([1, 1, 4, 8, 0, 0, 0, 0]);
  const deviation = Math.sqrt((1 + 1 + 16 + 64) / size + epsilon);
  for (const [at, value] of [1, 1, 4, 8].entries()) {
    expect(norm![at]).toBeCloseTo((value / deviation) * weight[at]!, 6);
  }
  expect([...norm!.subarray(size)]).toEqual([0, 0, -0, 0]);
  expect(compute([], []).map(({ length }) => length)).toEqual([0, 0]);
});

const config = { architectures: ["LlamaForCausalLM"], num_hidden_layers: 1 };

test.for<[DeviceName, DtypeName, string]>([
  ["cpu", "float32", "SimplifiedLayerNormalization"],
  ["cuda", "float16", "SkipSimplifiedLayerNormalization"],
])("on %s a layer in %s has the operator %s", ([device, dtype, operator]) => {
  const graphs = configureGraphs(config, { dtype, device, maxModelLen: 128 });
  const { nodes } = graphs.buildDecoder(imaginedWeights).graph;
  const ofSecondNorm = nodes.find(({ name }) => name === "model.layers.0.post_attention_layernorm");
  expect(ofSecondNorm?.operator).toBe(operator);
});
