/** A recorded model whose vision encoder never ends for a picture of very bright pixels, and is as recorded for others. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { decodeModel, encodeModel, onnxAttributeTypes, onnxDataTypes } from "../../../engine/graph/onnx-schema.ts";
import type { GraphProto, NodeProto, TensorProto, ValueInfoProto } from "../../../engine/graph/onnx-schema.ts";
import type { GoldenModel } from "./golden-engine.ts";

/** Pixels are normalised to about -2 to 2. */
const BRIGHTEST = 1000;

/** The pixels pass through a loop before all other nodes, which has 2^60 iterations for an endless picture. */
export async function withEndlessEncoder(golden: GoldenModel, folder: string): Promise<GoldenModel> {
  const visionEncoder = golden.model.visionEncoder!;
  const model = decodeModel(await readFile(visionEncoder.path));
  const pixels = model.graph.input[0]!;
  const late = `${pixels.name}.late`;
  const consumers = model.graph.node.map((node) => ({
    ...node,
    input: node.input.map((name) => (name === pixels.name ? late : name)),
  }));
  const initializer = [
    ...model.graph.initializer,
    constant("endless.limit", "float32", Float32Array.of(BRIGHTEST)),
    constant("endless.iterations", "int64", BigInt64Array.of(2n ** 60n)),
    constant("endless.true", "bool", Uint8Array.of(1)),
  ];
  const node = [
    createNode("ReduceMax", [pixels.name], ["endless.max"], { keepdims: 0 }),
    createNode("Greater", ["endless.max", "endless.limit"], ["endless.is"]),
    createNode("Cast", ["endless.is"], ["endless.factor"], { to: onnxDataTypes.int64 }),
    createNode("Mul", ["endless.factor", "endless.iterations"], ["endless.count"]),
    {
      ...createNode("Loop", ["endless.count", "endless.true", pixels.name], [late]),
      attribute: [{ name: "body", type: onnxAttributeTypes.graph, g: bodyOf(pixels) }],
    },
    ...consumers,
  ];
  const path = join(folder, "endless-encoder.onnx");
  await writeFile(path, encodeModel({ ...model, graph: { ...model.graph, node, initializer } }));
  return { ...golden, model: { ...golden.model, visionEncoder: { ...visionEncoder, path } } };
}

/** The request with other pictures, whose encoding does not end. */
export function endless(request: EngineRequest): EngineRequest {
  return {
    ...request,
    images: request.images.map((image) => ({
      ...image,
      mmHash: `endless ${image.mmHash}`,
      tensors: new Map(
        [...image.tensors].map(([name, tensor]) => [
          name,
          tensor.elementType === "float32" ? { ...tensor, data: tensor.data.map(() => 2 * BRIGHTEST) } : tensor,
        ]),
      ),
    })),
  };
}

function bodyOf(pixels: ValueInfoProto): GraphProto {
  const scalar = (name: string, elemType: number): ValueInfoProto => ({
    name,
    type: { tensorType: { elemType, shape: { dim: [] } } },
  });
  return {
    name: "endless.body",
    initializer: [],
    input: [
      scalar("body.iteration", onnxDataTypes.int64),
      scalar("body.condition", onnxDataTypes.bool),
      { ...pixels, name: "body.pixels" },
    ],
    output: [scalar("body.goes_on", onnxDataTypes.bool), { ...pixels, name: "body.negated" }],
    node: [
      createNode("Identity", ["body.condition"], ["body.goes_on"]),
      createNode("Neg", ["body.pixels"], ["body.negated"]),
    ],
  };
}

function createNode(
  opType: string,
  input: readonly string[],
  output: readonly string[],
  integers: Readonly<Record<string, number>> = {},
): NodeProto {
  const attribute = Object.entries(integers).map(([name, i]) => ({ name, type: onnxAttributeTypes.int, i }));
  return { name: `endless.${opType}`, opType, domain: "", input, output, attribute };
}

/** A scalar. */
function constant(
  name: string,
  elementType: "float32" | "int64" | "bool",
  data: Float32Array | BigInt64Array | Uint8Array,
): TensorProto {
  return { name, dims: [], dataType: onnxDataTypes[elementType], rawData: new Uint8Array(data.buffer) };
}
