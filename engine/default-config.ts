/** The settings of an engine whose caller gives only some of them. */
import { homedir, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import type { EngineConfig, ImageLimits } from "./contract/config.ts";

/** What `createEngine` takes: every setting has a default. */
export interface EngineOptions extends Partial<Omit<EngineConfig, "imageLimits">> {
  readonly imageLimits?: Partial<ImageLimits>;
}

/** The service's defaults; without a model, the small checkpoint that ships with Fovea, on the CPU. */
export function toEngineConfig({ imageLimits, ...options }: EngineOptions): EngineConfig {
  return {
    model: fileURLToPath(new URL("../models/fovea-shapes", import.meta.url)),
    dtype: "auto",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    maxNumSequences: 32,
    maxNumBatchedTokens: 512,
    maxNumWaiting: 256,
    enablePrefixCaching: true,
    logitsProcessors: [],
    logitsProcessorPath: [resolve(".")],
    numThreads: null,
    cacheFolder: defaultCacheFolder(),
    enableMmEmbeds: false,
    mmProcessorOptions: {},
    ...options,
    imageLimits: {
      maxImagesPerPrompt: 16,
      maxImageBytes: 20 * 1024 ** 2,
      maxImagePixels: 64 * 1024 ** 2,
      fetchTimeoutMs: 10_000,
      ...imageLimits,
    },
  };
}

function defaultCacheFolder(): string {
  try {
    return join(homedir(), ".cache", "fovea");
  } catch {
    // A container may run as a user id that has no home.
    return join(tmpdir(), "fovea-cache");
  }
}
