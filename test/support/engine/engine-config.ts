/** The settings of an engine over a recorded checkpoint, in this process. */
import { join } from "node:path";

import type { EngineConfig } from "../../../engine/index.ts";
import { goldensFolder } from "../checkpoints/goldens.ts";

/** Of a recorded checkpoint: small enough that requests wait, are split into chunks and share slots. */
export function goldenEngineConfig(name: string, cacheFolder: string): EngineConfig {
  return smallEngineConfig(join(goldensFolder, name), cacheFolder);
}

/** The same for the checkpoint in a folder. */
export function smallEngineConfig(model: string, cacheFolder: string): EngineConfig {
  return {
    model,
    dtype: "float32",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    maxNumSequences: 4,
    maxNumBatchedTokens: 64,
    maxNumWaiting: 4,
    logitsProcessors: [],
    logitsProcessorPath: [],
    numThreads: 1,
    cacheFolder,
    imageLimits: { maxImagesPerPrompt: 3, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 5000 },
  };
}
