/** The fall-back to eager runs, over a session whose captures end as failed runs do. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { CapturedRun } from "../../../engine/decoder/captured-run.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { add } from "../../../engine/graph/standard-ops.ts";
import { RunOptions, shrinkingRunOptions } from "../../../engine/runtime/run-options.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

const doubled = new Float32Array(1);
let owned: DisposableStack;
let run: (graph: Pick<RunOptions, "handle"> | null) => void;
/** Of each run: whether it was to capture or replay a graph. */
let kinds: ("eager" | "graph")[];

beforeEach(() => {
  const graph = new GraphBuilder("doubling");
  const x = graph.input("x", "float32", [1]);
  graph.output(add(graph, "y", x, x));
  owned = new DisposableStack();
  const session = owned.use(Session.fromBytes(graph.encode(), { device: "cpu", deviceId: 0, numThreads: 1 }));
  const binding = session.createBinding();
  binding.bindInput("x", owned.use(Tensor.fromTypedArray("float32", Float32Array.of(21), [1])));
  binding.bindOutput("y", owned.use(Tensor.fromTypedArray("float32", doubled, [1])));
  doubled.fill(0);
  kinds = [];
  run = (options) => {
    kinds.push(options === null ? "eager" : "graph");
    binding.run(options);
  };
});

afterEach(() => owned.dispose());

test("the second run captures, and later ones replay", () => {
  const captured = new CapturedRun(run, owned.use(new RunOptions({ gpu_graph_id: "1" })));
  for (let index = 0; index < 4; index++) captured.run();
  expect(kinds).toEqual(["eager", "graph", "graph", "graph"]);
});

test("without graphs every run is eager", () => {
  const captured = new CapturedRun(run, null);
  for (let index = 0; index < 3; index++) captured.run();
  expect(kinds).toEqual(["eager", "eager", "eager"]);
});

test("a capture that fails is computed eagerly, is not tried again, and warns once", async () => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error): void => void warnings.push(message);
  process.on("warning", onWarning);
  try {
    // Options that end a run with an error before its first node.
    const captured = new CapturedRun(run, shrinkingRunOptions());
    captured.run();
    doubled.fill(0);
    captured.run();
    expect(doubled[0]).toBe(42);
    captured.run();
    expect(kinds).toEqual(["eager", "graph", "eager", "eager"]);
    await vi.waitFor(() => expect(warnings).toHaveLength(1));
    expect(warnings[0]).toMatch(/could not be captured as a CUDA graph.*terminate/);
  } finally {
    process.off("warning", onWarning);
  }
});

test("a replay that fails, and a lost device, are errors of the step", () => {
  const options = owned.use(new RunOptions({ gpu_graph_id: "1" }));
  let failure: EngineError | null = null;
  const captured = new CapturedRun((graph) => {
    if (failure !== null) throw failure;
    run(graph);
  }, options);
  captured.run();
  failure = new EngineError("device_lost", "CUDA failure 700");
  expect(() => captured.run()).toThrow(failure);
  failure = null;
  captured.run();
  failure = new EngineError("runtime_failed", "CUDA failure 2: out of memory");
  expect(() => captured.run()).toThrow(failure);
  expect(kinds).toEqual(["eager", "graph"]);
});

test("a capture without memory for its graph is computed eagerly from then on", async () => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error): void => void warnings.push(message);
  process.on("warning", onWarning);
  try {
    const captured = new CapturedRun(
      (graph) => {
        run(null);
        if (graph !== null) throw new EngineError("out_of_memory", "CUDA failure 2: out of memory");
      },
      owned.use(new RunOptions({ gpu_graph_id: "1" })),
    );
    for (let index = 0; index < 3; index++) captured.run();
    expect(kinds).toEqual(["eager", "eager", "eager", "eager"]);
    await vi.waitFor(() => expect(warnings).toHaveLength(1));
  } finally {
    process.off("warning", onWarning);
  }
});

test("no graph is captured while it cannot be, and a captured one is replayed all the same", () => {
  let mayCapture = false;
  const options = owned.use(new RunOptions({ gpu_graph_id: "1" }));
  const captured = new CapturedRun(run, options, () => mayCapture);
  for (let index = 0; index < 3; index++) captured.run();
  mayCapture = true;
  captured.run();
  mayCapture = false;
  captured.run();
  expect(kinds).toEqual(["eager", "eager", "eager", "graph", "graph"]);
});
