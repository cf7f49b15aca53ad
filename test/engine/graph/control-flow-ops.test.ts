import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { choose } from "../../../engine/graph/control-flow-ops.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { peakBytes } from "../../../engine/graph/peak-bytes.ts";
import { add, cast, multiply } from "../../../engine/graph/standard-ops.ts";
import type { Value } from "../../../engine/graph/value.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** `x + x` where the condition is true, otherwise `(x * x) * x`. */
function buildChoice(): GraphBuilder {
  const graph = new GraphBuilder("choice");
  const x = graph.input("x", "float32", ["N"]);
  const [y] = choose(graph, "choice", {
    names: ["y"],
    condition: graph.input("condition", "bool", []),
    chosen: () => [add(graph, "doubled", x, x)],
    other: () => [multiply(graph, "cubed", multiply(graph, "squared", x, x), x)],
  });
  graph.output(y);
  return graph;
}

test("a run computes the branch that the condition names", async () => {
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "choice.onnx");
  await writeFile(path, buildChoice().encode());
  using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder: undefined });
  using binding = session.createBinding();
  const results = [true, false].map((condition) => {
    const values = new Float32Array(2);
    using x = Tensor.fromTypedArray("float32", Float32Array.of(3, 5), [2]);
    using chosen = Tensor.fromTypedArray("bool", Uint8Array.of(Number(condition)), []);
    using y = Tensor.fromTypedArray("float32", values, [2]);
    binding.bindInput("x", x);
    binding.bindInput("condition", chosen);
    binding.bindOutput("y", y);
    binding.run();
    return values.join(" ");
  });
  expect(results).toEqual(["6 10", "27 125"]);
});

test("the memory of a choice is that of its larger branch", () => {
  const graph = buildChoice();
  const [y] = graph.outputs;
  add(graph, "later", y!, y!);
  expect(peakBytes(graph, new Map([["N", 1000]]))).toBe(4000);
});

const faults: readonly {
  readonly claim: string;
  readonly branches: (graph: GraphBuilder, x: Value) => [() => readonly Value[], () => readonly Value[]];
  readonly message: RegExp;
}[] = [
  {
    claim: "branches of different types",
    branches: (graph, x) => [() => [add(graph, "sum", x, x)], () => [cast(graph, "whole", x, "int64")]],
    message: /Node choice \(If\): the branches compute sum: float32\[N\] and whole: int64\[N\]/,
  },
  {
    claim: "a branch without the output",
    branches: (graph, x) => [() => [add(graph, "sum", x, x)], () => []],
    message: /Node choice \(If\): a branch lacks the output y/,
  },
  {
    claim: "a branch that computes nothing",
    branches: (graph, x) => [() => [x], () => [add(graph, "sum", x, x)]],
    message: /Branch choice\.then returns x: float32\[N\], which it does not compute/,
  },
];

test.for(faults)("rejects $claim", ({ branches, message }) => {
  const graph = new GraphBuilder("choice");
  const x = graph.input("x", "float32", ["N"]);
  const condition = graph.input("condition", "bool", []);
  const [chosen, other] = branches(graph, x);
  expect(() => choose(graph, "choice", { names: ["y"], condition, chosen, other })).toThrow(message);
});

test("a value of a branch is unknown outside", () => {
  const graph = new GraphBuilder("choice");
  const x = graph.input("x", "float32", ["N"]);
  let inner: Value | undefined;
  graph.branch("inside", () => [(inner = add(graph, "sum", x, x))]);
  expect(() => add(graph, "outside", inner!, x)).toThrow(
    /Input sum: float32\[N\] of node outside \(Add\) is not a value/,
  );
});
