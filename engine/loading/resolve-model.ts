/** Resolves the references of a model and of the adapter that changes it. */
import type { EngineConfig } from "../contract/config.ts";
import { resolveCheckpoint, type ResolveCheckpointOptions } from "../weights/resolve-checkpoint.ts";

/** Absolute paths. */
export interface ModelFolders {
  readonly checkpoint: string;
  /** Null without an adapter. */
  readonly adapter: string | null;
}

/** Downloads what is not in the cache folder. Throws like `resolveCheckpoint`. */
export async function resolveModel(
  config: Pick<
    EngineConfig,
    "model" | "loraAdapter" | "cacheFolder" | "hub" | "gcsEmulatorUrl" | "azure" | "dtype" | "device"
  >,
  options: Pick<ResolveCheckpointOptions, "createS3Client" | "onProgress" | "signal">,
): Promise<ModelFolders> {
  const { model, loraAdapter = null, cacheFolder, hub, gcsEmulatorUrl, azure } = config;
  const source = { ...options, variant: config, cacheFolder, hub, gcsEmulatorUrl, azure };
  return {
    checkpoint: await resolveCheckpoint(model, source),
    adapter: loraAdapter === null ? null : await resolveCheckpoint(loraAdapter, { ...source, content: "adapter" }),
  };
}
