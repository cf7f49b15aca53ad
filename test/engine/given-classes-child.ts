/**
 * A process without a test runner's module loader that gives an engine a class: `exported` by a module of its own,
 * `hidden` in that module, or `local` to this one. Prints the generated token ids, or why there are none.
 */
import { createEngine, createSamplingParams, EngineError } from "../../engine/index.ts";
import type { EngineConfig } from "../../engine/index.ts";
import { Given, hidden } from "./given-processor.ts";

const [kind, model, cacheFolder] = process.argv.slice(2);

export class Local extends Given {
  static override readonly moduleUrl = import.meta.url;
}

const classes = { exported: Given, hidden, local: Local };

const config: EngineConfig = {
  model: model!,
  dtype: "float32",
  device: "cpu",
  deviceId: 0,
  maxModelLen: null,
  maxNumSequences: 1,
  maxNumBatchedTokens: 64,
  maxNumWaiting: 0,
  logitsProcessors: [],
  logitsProcessorPath: [],
  numThreads: 1,
  cacheFolder: cacheFolder!,
  imageLimits: { maxImagesPerPrompt: 1, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 5000 },
};
const engine = createEngine(config, {
  imageSources: [],
  logitsProcessors: [classes[kind as keyof typeof classes]],
});
try {
  await engine.ready;
  const tokenIds: number[] = [];
  const samplingParams = createSamplingParams({ maxTokens: 3, ignoreEos: true, extraArgs: { target_token: 7 } });
  const prompt = { kind: "tokens", tokenIds: [5] } as const;
  for await (const output of engine.generate({ requestId: "one", prompt, samplingParams })) {
    tokenIds.push(...output.tokenIds);
  }
  process.stdout.write(`${engine.modelInfo?.logitsProcessors.join()} gives ${tokenIds.join()}`);
} catch (error) {
  if (!(error instanceof EngineError)) throw error;
  process.stdout.write(`${error.code}: ${error.message}`);
}
await engine.close();
