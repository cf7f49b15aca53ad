/**
 * A process of its own for `webgpu-features.test.ts`: the Vulkan driver is chosen by the environment a process starts
 * with. Usage: node webgpu-features.ts CACHE_FOLDER; prints a `WebGpuFeaturesReport` as JSON.
 */
import { BuiltVisionEncoder } from "../../../engine/vision/built-vision-encoder.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";
import { buildFrom } from "../models/direct-build.ts";

export interface WebGpuFeaturesReport {
  readonly answers: readonly { readonly tokenIds: readonly number[]; readonly expected: readonly number[] }[];
  /** Images whose features were written to the host's memory, and to the device's. */
  readonly numOnHost: number;
  readonly numOnDevice: number;
}

const numTokens = 4;
const [cacheFolder] = process.argv.slice(2) as [string];
const { checkpointFolder, cases } = await loadGoldens("llava-default");
const model = await buildFrom(checkpointFolder, { cacheFolder, device: "webgpu" });

let [numOnHost, numOnDevice] = [0, 0];
// oxlint-disable-next-line typescript/unbound-method -- called with its own `this`
const { encode, encodeInto } = BuiltVisionEncoder.prototype;
BuiltVisionEncoder.prototype.encode = function (this: BuiltVisionEncoder, ...args: Parameters<typeof encode>) {
  numOnHost++;
  return encode.apply(this, args);
};
BuiltVisionEncoder.prototype.encodeInto = function (this: BuiltVisionEncoder, ...args: Parameters<typeof encodeInto>) {
  numOnDevice++;
  encodeInto.apply(this, args);
};

/** See webgpu-decoder.ts beside the tests of models. An image of the prompts has rows in several chunks. */
const config = { maxNumBatchedTokens: 24, maxNumSequences: 2, device: "webgpu" } as const;
using engine = await SteppedEngine.create(createWorkerOptions(model, config));
for (const golden of cases) {
  engine.add(goldenRequest(golden.name, golden, model, { maxTokens: numTokens }));
}
await engine.runToEnd();
const report: WebGpuFeaturesReport = {
  answers: cases.map(({ name, greedyTokenIds }) => ({
    tokenIds: engine.tokensOf(name),
    expected: greedyTokenIds.slice(0, numTokens),
  })),
  numOnHost,
  numOnDevice,
};
process.stdout.write(JSON.stringify(report));
