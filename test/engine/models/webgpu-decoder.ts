/**
 * A separate process for `webgpu.test.ts`, because the environment at the start of a process selects the Vulkan driver.
 * Usage: node webgpu-decoder.ts CACHE_FOLDER; prints a `WebGpuDecoderReport` as JSON.
 */
import { Session } from "../../../engine/runtime/session.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder, encodeImages } from "./direct-decoder.ts";
import { decodeGolden, relativeError } from "./golden-decoding.ts";

export interface WebGpuDecoderReport {
  /** Share of the logit range, against transformers. */
  readonly logitError: number;
  /** Share of the features' range, against transformers. */
  readonly featureError: number;
  /** Graphs that ONNX Runtime accepted for the device. */
  readonly loaded: readonly string[];
}

const [cacheFolder] = process.argv.slice(2) as [string];
const { checkpointFolder, cases } = await loadGoldens("llava-default");
const golden = cases.find((candidate) => candidate.name === "one")!;

// ONNX Runtime's kernel for 32 tokens or more in a run needs subgroups of 8 lanes or more, and SwiftShader's have 4:
// see small-subgroups.ts beside the tests of the runtime.
const chunkSize = 16;
const model = await buildFrom(checkpointFolder, { cacheFolder, device: "webgpu", dtype: "float32" });
const features = encodeImages(model, golden.pixelValues!, "webgpu");
const featureError = relativeError(features, golden.imageFeatures!);
using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 128, device: "webgpu" });
const shortened = { ...golden, greedyTokenIds: golden.greedyTokenIds.slice(0, 4) };
const logits = decodeGolden(decoder, model, shortened, chunkSize, features);
const logitError = relativeError(logits, golden.logits.subarray(0, logits.length));

// SwiftShader has no half precision: graphs are loaded, which checks types and assigns kernels, and not run.
const loaded: string[] = [];
for (const dtype of ["float16", "int8", "int4"] as const) {
  const built = await buildFrom(checkpointFolder, { cacheFolder, device: "webgpu", dtype });
  const { externalDataFolder } = built;
  for (const path of [built.decoder.path, built.visionEncoder!.path]) {
    using _session = Session.load(path, { device: "webgpu", deviceId: 0, numThreads: 1, externalDataFolder });
    loaded.push(dtype);
  }
}
const report: WebGpuDecoderReport = { logitError, featureError, loaded };
process.stdout.write(JSON.stringify(report));
