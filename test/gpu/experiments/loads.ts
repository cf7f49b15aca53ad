/** 1: the provider loads, computes and copies. */
import { GraphBuilder, standardDomain } from "../../../engine/graph/graph-builder.ts";
import { add } from "../../../engine/graph/standard-ops.ts";
import { cudaMemoryBytes } from "../../../engine/runtime/cuda-memory.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { randomNumbers, relativeError } from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";

export const loads: Experiment = {
  id: "1",
  title: "The provider loads, computes and copies",
  async run(context) {
    const { report, device } = context;
    await report.attempt("x + x", () => sumsOf(context));
    await report.attempt("copies to the device and back", () => copies(context));
    if (device !== "cuda") return;
    await report.attempt("the device tells its memory", () => {
      const { totalBytes, freeBytes } = cudaMemoryBytes(0);
      report.check("the device tells its memory", freeBytes > 0 && freeBytes <= totalBytes);
      report.figure("memory", totalBytes / 2 ** 30, "GiB");
      report.figure("free memory", freeBytes / 2 ** 30, "GiB");
    });
    await report.attempt("a convolution by cuDNN", () => convolve(context));
  },
};

function doubling(): GraphBuilder {
  const graph = new GraphBuilder("doubling");
  const x = graph.input("x", "float32", ["n"]);
  graph.output(add(graph, "y", x, x));
  return graph;
}

function sumsOf(context: ExperimentContext): void {
  const startedAt = performance.now();
  using session = loadGraph(context, "doubling", doubling());
  context.report.figure("time to load the first session", performance.now() - startedAt, "ms");
  using binding = session.createBinding();
  const values = randomNumbers(1000, 1);
  const doubled = new Float32Array(1000);
  using x = Tensor.fromTypedArray("float32", values, [1000]);
  using y = Tensor.fromTypedArray("float32", doubled, [1000]);
  binding.bindInput("x", x);
  binding.bindOutput("y", y);
  binding.run();
  context.report.check(
    "x + x",
    doubled.every((value, index) => value === 2 * values[index]!),
  );
  using onDevice = session.allocateTensor("float32", [1000]);
  onDevice.copyFrom(values);
  binding.bindInput("x", onDevice);
  const times = timeRuns(() => binding.run(), { numRuns: 500 });
  context.report.figure("a run of one node", medianOf(times) * 1000, "us");
}

function copies(context: ExperimentContext): void {
  using session = loadGraph(context, "doubling", doubling());
  const sizes = context.device === "cuda" ? [256, 2 ** 16, 2 ** 20, 2 ** 26] : [256, 2 ** 16];
  for (const numBytes of sizes) {
    const values = randomNumbers(numBytes / 4, 2);
    using tensor = session.allocateTensor("float32", [values.length]);
    tensor.copyFrom(values);
    const isEqual = relativeError(tensor.copyToHost(), values) === 0;
    context.report.check(`${numBytes} bytes come back as they were`, isEqual);
    const numRuns = numBytes > 2 ** 20 ? 10 : 200;
    const there = medianOf(timeRuns(() => tensor.copyFrom(values), { numRuns }));
    const back = medianOf(timeRuns(() => void tensor.copyToHost(), { numRuns }));
    context.report.figure(`${numBytes} bytes to the device`, there * 1000, "us");
    context.report.figure(`${numBytes} bytes to the host`, back * 1000, "us");
  }
}

/** Vision encoders of exports cut pictures into patches by one. It shows whether cuDNN is found. */
function convolve(context: ExperimentContext): void {
  const graph = new GraphBuilder("convolution");
  const shape = [1, 3, 28, 28];
  const weightShape = [32, 3, 14, 14];
  const [y] = graph.addNode({
    name: "y",
    operator: "Conv",
    domain: standardDomain,
    inputs: [graph.input("x", "float16", shape), graph.input("weight", "float16", weightShape)],
    attributes: { strides: { kind: "ints", value: [14, 14] } },
    outputs: [{ name: "y", elementType: "float16", shape: [1, 32, 2, 2] }],
  });
  graph.output(y);
  using session = loadGraph(context, "convolution", graph);
  using binding = session.createBinding();
  using x = Tensor.fromTypedArray("float16", new Float16Array(3 * 28 * 28).fill(0.5), shape);
  using weight = Tensor.fromTypedArray("float16", new Float16Array(32 * 3 * 14 * 14).fill(0.125), weightShape);
  const output = new Float16Array(128);
  using target = Tensor.fromTypedArray("float16", output, [1, 32, 2, 2]);
  binding.bindInput("x", x);
  binding.bindInput("weight", weight);
  binding.bindOutput("y", target);
  binding.run();
  context.report.check(
    "a convolution by cuDNN",
    output.every((value) => Math.abs(value - 36.75) < 0.1),
    `${output[0]}`,
  );
}
