/** A process that ends with 0 if a session computes on the first CUDA device, and else says on stderr why not. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { add } from "../../../engine/graph/standard-ops.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

const folder = mkdtempSync(join(tmpdir(), "fovea-probe-"));
try {
  const graph = new GraphBuilder("probe");
  const x = graph.input("x", "float32", ["n"]);
  graph.output(add(graph, "y", x, x));
  const path = join(folder, "probe.onnx");
  writeFileSync(path, graph.encode());
  using session = Session.load(path, { device: "cuda", deviceId: 0, numThreads: 1 });
  using binding = session.createBinding();
  const sum = new Float32Array(1);
  using input = Tensor.fromTypedArray("float32", Float32Array.of(21), [1]);
  using output = Tensor.fromTypedArray("float32", sum, [1]);
  binding.bindInput("x", input);
  binding.bindOutput("y", output);
  binding.run();
  if (sum[0] !== 42) throw new Error(`21 + 21 is ${sum[0]} there.`);
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
