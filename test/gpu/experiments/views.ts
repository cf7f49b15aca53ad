/** 2: tensors within others, as inputs and as outputs of kernels; paged attention with and without its cache outputs. */
import { EngineError } from "../../../engine/contract/errors.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { decodeModel, encodeModel } from "../../../engine/graph/onnx-schema.ts";
import { add } from "../../../engine/graph/standard-ops.ts";
import type { Tensor } from "../../../engine/runtime/tensor.ts";
import { elementTypesOf, loadGraph, loadModelBytes } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { decode, encode, randomNumbers, relativeError, rounded, toleranceOf } from "../numbers.ts";
import type { FloatType } from "../numbers.ts";
import { attendInLoops, buildAttention, randomBatch, runAttention } from "../paged-attention.ts";
import type { AttentionShape } from "../paged-attention.ts";

export const views: Experiment = {
  id: "2",
  title: "Views of device tensors",
  async run(context) {
    const { report } = context;
    for (const elementType of elementTypesOf(context)) {
      await report.attempt(`${elementType}: views of one allocation`, () => sumOfViews(context, elementType));
      await report.attempt(`${elementType}: paged attention`, () => attentionOutputs(context, elementType));
    }
  },
};

const alignmentBytes = 256;
const numElements = 4096;

/** left + right = sum, all three in one allocation, each that many bytes behind a multiple of 256. */
function sumOfViews(context: ExperimentContext, elementType: FloatType): void {
  const graph = new GraphBuilder("sum");
  const operand = (name: string) => graph.input(name, elementType, ["n"]);
  graph.output(add(graph, "sum", operand("left"), operand("right")));
  using session = loadGraph(context, `views-${elementType}`, graph);
  const size = elementType === "float32" ? 4 : 2;
  const stride = numElements + alignmentBytes / size;
  // Kernels load up to 16 bytes at once: what they make of less aligned tensors is only noted.
  for (const shiftBytes of [0, 16, size]) {
    using whole = session.allocateTensor(elementType, [3 * stride]);
    const contents = rounded(elementType, randomNumbers(3 * stride, 3));
    whole.copyFrom(encode(elementType, contents));
    const startOf = (index: number): number => index * stride + shiftBytes / size;
    using owned = new DisposableStack();
    const viewOf = (index: number): Tensor => owned.use(whole.view(startOf(index), [numElements]));
    using binding = session.createBinding();
    binding.bindInput("left", viewOf(0));
    binding.bindInput("right", viewOf(1));
    binding.bindOutput("sum", viewOf(2));
    let outcome = "";
    let error = Infinity;
    try {
      binding.run();
      const after = decode(elementType, whole.copyToHost());
      const at = (index: number): Float32Array => contents.subarray(startOf(index), startOf(index) + numElements);
      const expected = at(0).map((value, index) => value + at(1)[index]!);
      error = relativeError(after.subarray(startOf(2), startOf(2) + numElements), expected);
      outcome = `error ${error.toExponential(1)}`;
    } catch (cause) {
      if (cause instanceof EngineError && cause.code === "device_lost") throw cause;
      outcome = (cause as Error).message;
    }
    const name = `${elementType}: a sum of views ${shiftBytes} bytes behind 256`;
    if (shiftBytes === 0) context.report.check(name, error <= toleranceOf[elementType], outcome);
    else context.report.note(`${name}: ${outcome}`);
  }
}

function attentionOutputs(context: ExperimentContext, elementType: FloatType): void {
  const { device, folder, report } = context;
  const shape: AttentionShape = {
    elementType,
    numHeads: 4,
    numKvHeads: 2,
    headDim: 64,
    blockSize: device === "cuda" ? 256 : 16,
    localWindowSize: null,
  };
  const sequences = [
    { past: 300, length: 1 },
    { past: 0, length: 20 },
    { past: 33, length: 5 },
  ];
  const batch = randomBatch(shape, sequences, 7);
  const expected = attendInLoops(shape, batch);
  const model = buildAttention(device, shape).encode();
  const variants = device === "cuda" ? [true, false] : [true];
  for (const bindsPresent of variants) {
    const bytes = bindsPresent ? model : withoutCacheOutputs(model);
    using session = loadModelBytes(device, `${folder}/attention-${elementType}-${bindsPresent}.onnx`, bytes);
    const result = runAttention(session, shape, batch, { bindsPresent });
    const errors = [
      relativeError(result.attended, expected.attended),
      relativeError(result.keyCache, expected.keyCache),
      relativeError(result.valueCache, expected.valueCache),
    ];
    const name = `${elementType}: paged attention ${bindsPresent ? "with" : "without"} cache outputs`;
    const detail = `errors ${errors.map((error) => error.toExponential(1)).join(", ")}`;
    report.check(
      name,
      errors.every((error) => error <= toleranceOf[elementType]),
      detail,
    );
  }
}

/** The operator may leave its cache outputs out, and updates the caches all the same. */
function withoutCacheOutputs(bytes: Uint8Array): Uint8Array {
  const model = decodeModel(bytes);
  const isPresent = (name: string): boolean => name.startsWith("present.");
  const node = model.graph.node.map((each) => ({
    ...each,
    output: each.output.map((name) => (isPresent(name) ? "" : name)),
  }));
  const output = model.graph.output.filter(({ name }) => !isPresent(name));
  return encodeModel({ ...model, graph: { ...model.graph, node, output } });
}
