/** 9: image features that stay on the device: the encoder writes into a view of a pool, another session reads its rows. */
import { join } from "node:path";

import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { gatherRows } from "../../../engine/graph/standard-ops.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { relativeError } from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";
import { goldenDtypes } from "./whole-decoder.ts";

export const vision: Experiment = {
  id: "9",
  title: "Image features on the device",
  async run(context) {
    for (const name of ["llava-default", "llava-siglip"] as const) {
      for (const dtype of goldenDtypes(context)) {
        await context.report.attempt(`${name} ${dtype}`, () => encodeIntoPool(context, name, dtype));
      }
    }
  },
};

/** Towers compute in 16 bits on a GPU. */
const tolerances: Readonly<Record<string, number>> = { float32: 1e-4, float16: 2e-2, bfloat16: 8e-2 };

async function encodeIntoPool(
  context: ExperimentContext,
  name: "llava-default" | "llava-siglip",
  dtype: ReturnType<typeof goldenDtypes>[number],
): Promise<void> {
  const { device, folder, report } = context;
  const cacheFolder = join(folder, "cache");
  const { checkpointFolder, cases } = await loadGoldens(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  const kvLayout = { kind: "slots" } as const;
  const model = await buildModel(checkpoint, { dtype, device, kvLayout, maxModelLen: 512, cacheFolder, numThreads: 2 });
  const encoder = model.visionEncoder;
  if (encoder === null || encoder.form !== "in-place") throw new Error(`${name} has a tower of ours`);
  const { hiddenSize } = model.decoder;
  const { numImageTokens, imageSize } = encoder;
  using tower = Session.load(encoder.path, {
    device,
    deviceId: 0,
    numThreads: 2,
    externalDataFolder: model.externalDataFolder,
  });
  const golden = cases.find(({ pixelValues }) => pixelValues !== null)!;
  const picture = golden.pixelValues!.slice(0, 3 * imageSize ** 2);
  const expected = golden.imageFeatures!.slice(0, numImageTokens * hiddenSize);
  // The image's rows begin neither at the pool's start nor at a round number of rows; in bytes they are aligned.
  const rowsBefore = 64;
  const numPoolRows = rowsBefore + numImageTokens + 8;
  using pool = tower.allocateTensor("float32", [numPoolRows, hiddenSize]);
  pool.copyFrom(new Float32Array(numPoolRows * hiddenSize).fill(-3));
  using rows = pool.view(rowsBefore * hiddenSize, [1, numImageTokens, hiddenSize]);
  using pixels = Tensor.fromTypedArray("float32", picture, [1, 3, imageSize, imageSize]);
  using encoding = tower.createBinding();
  encoding.bindInput(encoder.inputs[0]!.name, pixels);
  encoding.bindOutput("image_features", rows);
  encoding.run();

  const graph = new GraphBuilder("reader");
  const poolInput = graph.input("pool", "float32", ["P", hiddenSize]);
  graph.output(gatherRows(graph, "embedded", poolInput, graph.input("rows", "int64", ["N"])));
  using reader = loadGraph(context, `reader-${name}`, graph);
  using reading = reader.createBinding();
  const wanted = BigInt64Array.from({ length: numImageTokens + 2 }, (_, index) => BigInt(rowsBefore - 1 + index));
  const features = new Float32Array(wanted.length * hiddenSize);
  using rowIds = Tensor.fromTypedArray("int64", wanted, [wanted.length]);
  using embedded = Tensor.fromTypedArray("float32", features, [wanted.length, hiddenSize]);
  reading.bindInput("pool", pool);
  reading.bindInput("rows", rowIds);
  reading.bindOutput("embedded", embedded);
  reading.run();
  const error = relativeError(features.slice(hiddenSize, -hiddenSize), expected);
  const label = `${name} ${dtype}`;
  report.check(
    `${label}: the other session reads the features`,
    error <= (tolerances[dtype] ?? 0),
    `error ${error.toExponential(1)}`,
  );
  const around = [...features.slice(0, hiddenSize), ...features.slice(-hiddenSize)];
  report.check(
    `${label}: the rows around are as they were`,
    around.every((value) => value === -3),
  );
  const numRuns = device === "cpu" ? 2 : 50;
  report.figure(`${label}: encode into the pool`, medianOf(timeRuns(() => encoding.run(), { numRuns })), "ms");
  const host = new Float32Array(numImageTokens * hiddenSize);
  using onHost = Tensor.fromTypedArray("float32", host, [1, numImageTokens, hiddenSize]);
  encoding.bindOutput("image_features", onHost);
  report.figure(`${label}: encode to the host`, medianOf(timeRuns(() => encoding.run(), { numRuns })), "ms");
}
