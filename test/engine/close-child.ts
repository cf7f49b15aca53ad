/**
 * Starts an engine on the given checkpoint and cache folder, sends a request, and closes it. The process must then end
 * by itself.
 */
import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";

const [model, cacheFolder] = process.argv.slice(2);
const engine = createEngine(
  {
    model,
    dtype: "float32",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    maxNumSequences: 2,
    maxNumBatchedTokens: 64,
    maxNumWaiting: 2,
    logitsProcessors: [],
    logitsProcessorPath: [],
    numThreads: 1,
    cacheFolder,
    imageLimits: { maxImagesPerPrompt: 1, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 60_000 },
  },
  { imageSources: [createDataUrlImageSource()] },
);
await engine.ready;
// A picture of one pixel, so that the decoding threads have been started.
const reference =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const content = [{ type: "image", reference } as const];
const outputs = engine.generate({
  requestId: "one",
  prompt: { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true },
  samplingParams: createSamplingParams({ maxTokens: 4, ignoreEos: true }),
});
let numTokens = 0;
for await (const { tokenIds } of outputs) numTokens += tokenIds.length;
await engine.close();
process.stdout.write(String(numTokens));
