/** ONNX models of one node for the runtime's tests. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

import { externalDataFolder } from "../../../engine/graph/external-data.ts";
import { GraphBuilder, microsoftDomain, standardDomain } from "../../../engine/graph/graph-builder.ts";
import { encodeModel } from "../../../engine/graph/onnx-schema.ts";
import type { Value } from "../../../engine/graph/value.ts";
import type { ExternalTensor } from "../../../engine/weights/stored-tensor.ts";

/** Input `left` and `right`, output `sum`: all float32 [rows, columns]. */
export async function writeSumModel(folder: string): Promise<string> {
  const graph = new GraphBuilder("sum");
  const shape = ["rows", "columns"];
  const left = graph.input("left", "float32", shape);
  const right = graph.input("right", "float32", shape);
  const [sum] = graph.addNode({
    name: "sum",
    operator: "Add",
    domain: standardDomain,
    inputs: [left, right],
    outputs: [{ name: "sum", elementType: "float32", shape }],
  });
  graph.output(sum);
  return writeModel(folder, "sum", graph.encode());
}

/** Input `x`, output `tripled`, float32 [size]; between two nodes there is a value of the same size. */
export async function writeTripleModel(folder: string): Promise<string> {
  const graph = new GraphBuilder("triple");
  const x = graph.input("x", "float32", ["size"]);
  const addX = (name: string, value: Value): Value => {
    const outputs = [{ name, elementType: "float32" as const, shape: ["size"] }];
    return graph.addNode({ name, operator: "Add", domain: standardDomain, inputs: [value, x], outputs })[0]!;
  };
  graph.output(addX("tripled", addX("doubled", x)));
  return writeModel(folder, "triple", graph.encode());
}

/**
 * Input `x`, output `y` = `x`: [size] of any ONNX element type by number, even one that the graph builder does not
 * know.
 */
export async function writeIdentityModel(folder: string, elementTypeCode: number): Promise<string> {
  const tensorType = { elemType: elementTypeCode, shape: { dim: [{ dimParam: "size" }] } };
  const node = {
    name: "identity",
    opType: "Identity",
    domain: standardDomain,
    input: ["x"],
    output: ["y"],
    attribute: [],
  };
  const model = encodeModel({
    irVersion: 10,
    producerName: "test",
    opsetImport: [{ domain: standardDomain, version: 21 }],
    graph: {
      name: "identity",
      node: [node],
      initializer: [],
      input: [{ name: "x", type: { tensorType } }],
      output: [{ name: "y", type: { tensorType } }],
    },
  });
  return writeModel(folder, `identity-${elementTypeCode}`, model);
}

export interface ProductModel {
  readonly path: string;
  readonly externalDataFolder: string;
  readonly weights: readonly ExternalTensor[];
}

/** Input `x`, output `y` = `x` times a weight of whole numbers in a file: float32 [rows, size]. */
export async function writeProductModel(folder: string, size: number): Promise<ProductModel> {
  const file = join(folder, "weights.bin");
  const numbers = Float32Array.from({ length: size * size }, (_, index) => ((index * 2_654_435_761) % 5) - 2);
  // Other weights come before it.
  const byteOffset = 64;
  await writeFile(file, Buffer.concat([Buffer.alloc(byteOffset), Buffer.from(numbers.buffer)]));
  const graph = new GraphBuilder("product");
  const x = graph.input("x", "float32", ["rows", size]);
  const { byteLength } = numbers;
  const stored = { name: "weight", elementType: "float32", shape: [size, size], file, byteOffset, byteLength } as const;
  const weight = graph.externalTensor("weight", stored);
  const [y] = graph.addNode({
    name: "product",
    operator: "MatMul",
    domain: standardDomain,
    inputs: [x, weight],
    outputs: [{ name: "y", elementType: "float32", shape: ["rows", size] }],
  });
  graph.output(y);
  const path = await writeModel(folder, "product", graph.encode());
  return { path, externalDataFolder, weights: graph.externalTensors };
}

export const attentionSizes = { numHeads: 2, numKvHeads: 1, headDim: 32, maxLength: 64 } as const;

/** One `GroupQueryAttention`; inputs and outputs have the names of the operator's documentation. */
export async function writeAttentionModel(folder: string): Promise<string> {
  const { numHeads, numKvHeads, headDim, maxLength } = attentionSizes;
  const graph = new GraphBuilder("attention");
  const kvShape = ["batch", numKvHeads, maxLength, headDim];
  const inputs = [
    graph.input("query", "float32", ["batch", "length", numHeads * headDim]),
    graph.input("key", "float32", ["batch", "length", numKvHeads * headDim]),
    graph.input("value", "float32", ["batch", "length", numKvHeads * headDim]),
    graph.input("past_key", "float32", kvShape),
    graph.input("past_value", "float32", kvShape),
    graph.input("seqlens_k", "int32", ["batch"]),
    graph.input("total_sequence_length", "int32", []),
  ];
  const outputs = graph.addNode({
    name: "attention",
    operator: "GroupQueryAttention",
    domain: microsoftDomain,
    inputs,
    attributes: {
      num_heads: { kind: "int", value: numHeads },
      kv_num_heads: { kind: "int", value: numKvHeads },
    },
    outputs: [
      { name: "output", elementType: "float32", shape: ["batch", "length", numHeads * headDim] },
      { name: "present_key", elementType: "float32", shape: kvShape },
      { name: "present_value", elementType: "float32", shape: kvShape },
    ],
  });
  for (const output of outputs) graph.output(output);
  return writeModel(folder, "attention", graph.encode());
}

async function writeModel(folder: string, name: string, model: Uint8Array): Promise<string> {
  const path = join(folder, `${name}.onnx`);
  await writeFile(path, model);
  return path;
}
