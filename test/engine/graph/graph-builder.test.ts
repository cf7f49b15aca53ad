import { chmod, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { groupQueryAttention, simplifiedLayerNormalization } from "../../../engine/graph/contrib-ops.ts";
import { externalDataFolder } from "../../../engine/graph/external-data.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { matMulNBits } from "../../../engine/graph/quantised-ops.ts";
import * as ops from "../../../engine/graph/standard-ops.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const faults: readonly {
  readonly claim: string;
  readonly build: (graph: GraphBuilder) => unknown;
  readonly message: RegExp;
}[] = [
  {
    claim: "a weight of another width",
    build: (graph) =>
      ops.gemm(graph, "mlp.up", graph.input("x", "float32", ["N", 4]), graph.input("w", "float32", [8, 5]), null),
    message: /Node mlp\.up \(Gemm\): w: float32\[8, 5\] should have shape \[8, 4\]/,
  },
  {
    claim: "sizes that are only known to differ by name",
    build: (graph) =>
      ops.add(graph, "sum", graph.input("x", "float32", ["N", 4]), graph.input("y", "float32", ["M", 4])),
    message: /Node sum \(Add\): x: float32\[N, 4\] and y: float32\[M, 4\] do not broadcast/,
  },
  {
    claim: "another element type",
    build: (graph) => ops.multiply(graph, "scaled", graph.input("x", "float32", [2]), graph.input("y", "float16", [2])),
    message: /Node scaled \(Mul\): y: float16\[2\] should be float32/,
  },
  {
    claim: "a reshape that loses elements",
    build: (graph) => {
      const target = graph.constant("target", "int64", [1], [5]);
      return ops.reshape(graph, "flat", graph.input("x", "float32", [2, 3]), target, [5]);
    },
    message: /Node flat \(Reshape\): x: float32\[2, 3\] does not have the size of \[5\]/,
  },
  {
    claim: "pieces that do not add up",
    build: (graph) => ops.split(graph, "halves", graph.input("x", "float32", ["N", 6]), { axis: 1, sizes: [3, 2] }),
    message: /Node halves \(Split\): axis 1 of x: float32\[N, 6\] should have size 5/,
  },
  {
    claim: "blocks of another size",
    build: (graph) => {
      const weight = graph.input("w", "uint8", [8, 2, 16]);
      const quantised = { weight, scales: graph.input("s", "float32", [16]), bits: 4, blockSize: 64 } as const;
      return matMulNBits(graph, "q", {
        input: graph.input("x", "float32", ["N", 64]),
        quantised,
        bias: null,
        quantisesActivations: true,
      });
    },
    message: /Node q \(MatMulNBits\): w: uint8\[8, 2, 16\] should have shape \[8, 1, 32\]/,
  },
  {
    claim: "heads that do not divide into groups",
    build: (graph) => {
      const past = graph.input("past", "float32", ["B", 2, "maxLen", 16]);
      return groupQueryAttention(graph, "attention", {
        query: graph.input("q", "float32", ["B", "S", 48]),
        key: null,
        value: null,
        pastKey: past,
        pastValue: past,
        seqlensK: graph.input("seqlens_k", "int32", ["B"]),
        totalSequenceLength: graph.input("total", "int32", []),
        rotary: null,
        numHeads: 3,
        numKvHeads: 2,
        headDim: 16,
        localWindowSize: null,
        scale: null,
        headSink: null,
        presentKeyName: "present.key",
        presentValueName: "present.value",
      });
    },
    message: /Node attention \(GroupQueryAttention\): 3 heads do not divide into 2 groups/,
  },
  {
    claim: "a constant with values missing",
    build: (graph) => graph.constant("table", "float32", [2, 2], [1, 2, 3]),
    message: /Constant table has 3 values; its shape \[2, 2\] needs 4/,
  },
  {
    claim: "a constant with the name of another and other contents",
    build: (graph) => [2, 3].map((size) => graph.constant("sizes", "int64", [2], [-1, size])),
    message: /Graph test has two values named sizes; the second is constant sizes/,
  },
  {
    claim: "a second value of the same name",
    build: (graph) => ops.relu(graph, "x", graph.input("x", "float32", [2])),
    message: /Graph test has two values named x; the second is node x \(Relu\)/,
  },
  {
    claim: "a value of another graph",
    build: (graph) => ops.relu(graph, "y", new GraphBuilder("other").input("x", "float32", [2])),
    message: /Input x: float32\[2\] of node y \(Relu\) is not a value of this graph/,
  },
];

test.for(faults)("rejects $claim while building, and names the node", ({ build, message }) => {
  expect(() => build(new GraphBuilder("test"))).toThrow(message);
});

/** Writes a tensor into its own file, after `byteOffset` other bytes, and returns its position. */
async function store(file: string, shape: readonly number[], values: readonly number[]): Promise<StoredTensor> {
  const byteOffset = 24;
  const data = Float32Array.from(values);
  await writeFile(file, Buffer.concat([Buffer.alloc(byteOffset, 255), Buffer.from(data.buffer)]));
  return { name: "stored", elementType: "float32", shape, file, byteOffset, byteLength: data.byteLength };
}

test("a graph with weights in several folders computes correctly", async () => {
  await using folder = await createTemporaryFolder();
  // As in a hub cache: a read-only folder, and a link to a file elsewhere.
  const [checkpoint, blobs, cache] = ["checkpoint", "blobs", "cache"].map((name) => join(folder.path, name));
  for (const path of [checkpoint, blobs, cache]) await mkdir(path!);
  const weight = await store(join(blobs!, "weight"), [2, 3], [1, 2, 3, 4, 5, 6]);
  await symlink(weight.file, join(checkpoint!, "linked"));
  await chmod(checkpoint!, 0o555);
  const norm = await store(join(cache!, "norm"), [2], [10, 100]);

  const graph = new GraphBuilder("two_folders");
  const input = graph.input("input", "float32", ["N", 3]);
  const linked = graph.externalTensor("weight", { ...weight, file: join(checkpoint!, "linked") });
  const product = ops.gemm(graph, "product", input, linked, graph.constant("bias", "float32", [2], [0.5, -0.5]));
  const scaled = graph.externalTensor("norm", norm);
  const normalised = simplifiedLayerNormalization(graph, "output", { input: product, weight: scaled, epsilon: 0 });
  graph.output(normalised, ["N", 2]);
  const path = join(cache!, "model.onnx");
  await writeFile(path, graph.encode());

  const options = { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder } as const;
  using session = Session.load(path, options);
  using binding = session.createBinding();
  const output = new Float32Array(4);
  binding.bindInput("input", Tensor.fromTypedArray("float32", Float32Array.of(1, 0, 0, 0, 1, -1), [2, 3]));
  binding.bindOutput("output", Tensor.fromTypedArray("float32", output, [2, 2]));
  binding.run();

  const expected = [
    [1.5, 3.5],
    [-0.5, -1.5],
  ].flatMap((row) => {
    const rootMeanSquare = Math.hypot(...row) / Math.SQRT2;
    return [(row[0]! / rootMeanSquare) * 10, (row[1]! / rootMeanSquare) * 100];
  });
  expected.forEach((value, index) => expect(output[index]).toBeCloseTo(value, 4));
  await chmod(checkpoint!, 0o755);
});
