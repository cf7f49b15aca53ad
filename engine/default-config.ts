/** Completes the settings of an engine with defaults. */
import { homedir, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import type { EngineConfig, HubConfig, ImageLimits } from "./contract/config.ts";
import { defaultEngineLimits, defaultImageLimits } from "./contract/default-limits.ts";

type Optional<Settings> = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** Options of `createEngine`. Every setting has a default, which also replaces undefined. */
export interface EngineOptions extends Optional<Omit<EngineConfig, "imageLimits" | "hub">> {
  readonly imageLimits?: Optional<ImageLimits> | undefined;
  readonly hub?: Optional<HubConfig> | undefined;
}

/**
 * Completes the options with the service's defaults: without a model, the small shipped checkpoint on the CPU. Settings
 * that are optional in `EngineConfig` get their defaults where they are used.
 */
export function toEngineConfig({ imageLimits = {}, hub = {}, ...options }: EngineOptions): EngineConfig {
  return {
    model: fileURLToPath(new URL("../models/fovea-shapes", import.meta.url)),
    dtype: "auto",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    ...defaultEngineLimits,
    logitsProcessors: [],
    logitsProcessorPath: [resolve(".")],
    numThreads: null,
    cacheFolder: defaultCacheFolder("fovea", "fovea-cache"),
    hub: toHubConfig(hub),
    ...definedOf(options),
    imageLimits: {
      ...defaultImageLimits,
      ...definedOf(imageLimits),
    },
  };
}

/** The fields that have a value. */
function definedOf<Settings extends object>(
  settings: Settings,
): { readonly [Name in keyof Settings]: Exclude<Settings[Name], undefined> } {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as never;
}

/** The defaults of huggingface_hub. */
function toHubConfig(hub: Optional<HubConfig>): HubConfig {
  const home = defaultCacheFolder("huggingface", "huggingface-cache");
  return {
    endpoint: "https://huggingface.co",
    cacheFolder: join(home, "hub"),
    token: null,
    tokenFile: join(home, "token"),
    isOffline: false,
    ...definedOf(hub),
  };
}

function defaultCacheFolder(name: string, temporaryName: string): string {
  try {
    return join(homedir(), ".cache", name);
  } catch {
    // A container may run as a user id without a home folder.
    return join(tmpdir(), temporaryName);
  }
}
