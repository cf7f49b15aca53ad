import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { externalDataFolder } from "../../../engine/graph/external-data.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { gatherBlockQuantized, matMulNBits } from "../../../engine/graph/quantised-ops.ts";
import { gemm } from "../../../engine/graph/standard-ops.ts";
import type { Value } from "../../../engine/graph/value.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../engine/weights/prepare-weights.ts";
import type { PreparedWeight, WeightFormat } from "../../../engine/weights/prepared-weights.ts";
import { quantizeBlockwise } from "../../../engine/weights/quantize.ts";
import { dequantizeBlockwise, normalValues } from "../../support/checkpoints/dequantize.ts";
import { floatTensor, writeCheckpoint } from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const outputSize = 48;

const weights = (inputSize: number): Float32Array => normalValues(outputSize * inputSize);

/** Prepares [outputSize, inputSize], builds a graph with it and runs it. */
async function runOver(
  format: WeightFormat,
  input: { readonly tensor: Tensor; readonly value: (graph: GraphBuilder) => Value },
  inputSize: number,
  outputShape: readonly number[],
  build: (graph: GraphBuilder, input: Value, prepared: PreparedWeight) => Value,
): Promise<Float32Array> {
  await using folder = await createTemporaryFolder();
  const shape = [outputSize, inputSize];
  await writeCheckpoint(folder.path, {}, [floatTensor("w", shape, weights(inputSize))]);
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const request = { name: "w", sources: ["w"], shape, format };
  const prepared = await prepareWeights(checkpoint, [request], { cacheFolder: folder.path, numThreads: 1 });

  const graph = new GraphBuilder("mapped");
  const output = build(graph, input.value(graph), prepared.get("w")!);
  graph.output(output);
  const path = join(folder.path, "model.onnx");
  await writeFile(path, graph.encode());
  using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder });
  using binding = session.createBinding();
  using result = session.allocateTensor("float32", outputShape);
  binding.bindInput("input", input.tensor);
  binding.bindOutput(output.name, result);
  binding.run();
  return result.copyToHost();
}

function floatInput(rows: number, inputSize: number) {
  const values = normalValues(rows * inputSize, 7);
  return {
    values,
    tensor: Tensor.fromTypedArray("float32", values, [rows, inputSize]),
    value: (graph: GraphBuilder): Value => graph.input("input", "float32", [rows, inputSize]),
  };
}

/** input [rows, in] x weight [out, in] transposed, in float64. */
function multiply(input: Float32Array, weight: ArrayLike<number>, inputSize: number): Float64Array {
  const rows = input.length / inputSize;
  return Float64Array.from({ length: rows * outputSize }, (_, index) => {
    const [row, output] = [Math.floor(index / outputSize), index % outputSize];
    let sum = 0;
    for (let i = 0; i < inputSize; i++) sum += input[row * inputSize + i]! * weight[output * inputSize + i]!;
    return sum;
  });
}

/** Root of the summed squared differences, as a fraction of the expected values' norm. */
function relativeError(found: Float32Array, expected: ArrayLike<number>): number {
  const norm = (values: readonly number[]): number => Math.hypot(...values);
  return norm([...found].map((value, index) => value - expected[index]!)) / norm(Array.from(expected));
}

/** The values that the prepared weight represents. */
function quantisedWeights(
  inputSize: number,
  format: { readonly bits: 4 | 8; readonly blockSize: number },
): Float64Array {
  const quantised = quantizeBlockwise(weights(inputSize), outputSize, inputSize, format);
  return dequantizeBlockwise(quantised, outputSize, inputSize, format);
}

test.for([
  { bits: 4, rows: 1, inputSize: 128 },
  { bits: 4, rows: 5, inputSize: 128 },
  // The last block of a row is half empty.
  { bits: 4, rows: 5, inputSize: 80 },
  { bits: 8, rows: 1, inputSize: 128 },
  { bits: 8, rows: 5, inputSize: 80 },
] as const)("MatMulNBits computes with the quantised weights: %o", async ({ bits, rows, inputSize }) => {
  const format = { kind: "blockwise", bits, blockSize: 32 } as const;
  const input = floatInput(rows, inputSize);
  const found = await runOver(format, input, inputSize, [rows, outputSize], (graph, value, { weight, scales }) =>
    matMulNBits(graph, "output", {
      input: value,
      quantised: { ...format, weight: graph.externalTensor("w", weight), scales: graph.externalTensor("s", scales!) },
      bias: null,
      quantisesActivations: true,
    }),
  );
  // The remaining error is the kernel's rounding of the input to 8 bits.
  const expected = multiply(input.values, quantisedWeights(inputSize, format), inputSize);
  expect(relativeError(found, expected)).toBeLessThan(0.01);
});

test.for([4, 8] as const)("GatherBlockQuantized returns the rows that were quantised, %i bits", async (bits) => {
  const [inputSize, format] = [128, { kind: "blockwise", bits, blockSize: 32 } as const];
  const indices = [3, 47, 0, 3];
  const input = {
    tensor: Tensor.fromTypedArray("int64", BigInt64Array.from(indices, BigInt), [indices.length]),
    value: (graph: GraphBuilder): Value => graph.input("input", "int64", [indices.length]),
  };
  const outputShape = [indices.length, inputSize];
  const found = await runOver(format, input, inputSize, outputShape, (graph, value, { weight, scales }) =>
    gatherBlockQuantized(graph, "output", {
      indices: value,
      quantised: {
        ...format,
        weight: graph.externalTensor("w", weight, [outputSize, (inputSize * bits) / 8]),
        scales: graph.externalTensor("s", scales!, [outputSize, inputSize / 32]),
      },
      columns: inputSize,
    }),
  );
  const table = quantisedWeights(inputSize, format);
  const expected = found.map(
    (_, index) => table[indices[Math.floor(index / inputSize)]! * inputSize + (index % inputSize)]!,
  );
  expect(relativeError(found, expected)).toBeLessThan(1e-6);
});

test("Gemm computes with the weight as it is stored in the checkpoint", async () => {
  const [rows, inputSize] = [3, 80];
  const input = floatInput(rows, inputSize);
  const format = { kind: "plain", elementType: "float32" } as const;
  const found = await runOver(format, input, inputSize, [rows, outputSize], (graph, value, { weight }) =>
    gemm(graph, "output", value, graph.externalTensor("w", weight), null),
  );
  expect(relativeError(found, multiply(input.values, weights(inputSize), inputSize))).toBeLessThan(1e-6);
});
