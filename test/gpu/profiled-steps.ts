/**
 * `node profiled-steps.ts DTYPE DEVICE FOLDER`: steps of the large model for a profiler, which records only them. A kernel
 * that no step has, a sine, comes before and after each. Prints a line for each: its name, a tab and its milliseconds.
 */
import koffi from "koffi";

import type { DtypeName } from "../../engine/contract/config.ts";
import { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { sine } from "../../engine/graph/standard-ops.ts";
import { Session } from "../../engine/runtime/session.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { maxLargeLen } from "./experiments/whole-decoder.ts";
import { buildRandomModel, fastBlockSize, largeShape, tinyShape } from "./models.ts";
import { profiledSteps } from "./profile-report.ts";
import { addTokens, createSteppedEngine } from "./stepped-load.ts";

const [dtype, device, folder] = process.argv.slice(2) as [DtypeName, ExperimentDevice, string];
const isSmall = device === "cpu";
const shape = isSmall ? tinyShape : largeShape;
const maxModelLen = isSmall ? 256 : maxLargeLen;
const kvLayout = { kind: "paged", blockSize: fastBlockSize(device, shape.headDim) } as const;
const model = await buildRandomModel({ shape, dtype, device, kvLayout, maxModelLen, folder });
const contextTokens = isSmall ? 20 : 1000;
const steps = profiledSteps(isSmall);
const maxNumSequences = Math.max(...steps.map(({ numSequences }) => numSequences));
// Eagerly: a captured graph is one launch to a profiler.
const limits = { maxNumSequences, maxNumBatchedTokens: 1024, enforceEager: true };
using engine = await createSteppedEngine(model, device, maxModelLen, limits);

const graph = new GraphBuilder("marker");
graph.output(sine(graph, "marked", graph.input("any", "float32", [4])));
using marker = Session.fromBytes(graph.encode(), { device, deviceId: 0, numThreads: 1 });
using marking = marker.createBinding();
using any = marker.allocateTensor("float32", [4]);
using marked = marker.allocateTensor("float32", [4]);
marking.bindInput("any", any);
marking.bindOutput("marked", marked);

function profile(action: () => void): number {
  const runtime = isSmall ? null : koffi.load("libcudart.so.13");
  runtime?.func("int cudaProfilerStart()")();
  marking.run();
  const startedAt = performance.now();
  action();
  const elapsed = performance.now() - startedAt;
  marking.run();
  runtime?.func("int cudaProfilerStop()")();
  return elapsed;
}

let salt = 0;
for (const { name, numSequences, numTokens } of steps) {
  const add = (length: number, maxTokens: number): string[] =>
    Array.from({ length: numSequences }, () => addTokens(engine, model.decoder.vocabSize, length, maxTokens, ++salt));
  if (numTokens === 1) {
    // The first sequences decode while the prompts of the last ones are computed, one or two in a step.
    const maxTokens = 64 + 2 * numSequences;
    const ids = add(contextTokens, maxTokens);
    while (ids.some((id) => engine.tokensOf(id).length < 3)) engine.step();
    const ended = ids.filter((id) => engine.tokensOf(id).length === maxTokens);
    if (ended.length > 0) throw new Error(`${ended.length} sequences have ended before the step.`);
    console.log(`${name}\t${profile(() => void engine.step())}`);
    engine.abort(...ids);
  } else {
    add(numTokens, 1);
    while (engine.step());
    add(numTokens, 1);
    console.log(`${name}\t${profile(() => void engine.step())}`);
  }
  while (engine.step());
}
