/** Resolves the references of a model and of the adapters that change it. */
import type { EngineConfig, LoraModule } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { resolveCheckpoint, type ResolveCheckpointOptions } from "../weights/resolve-checkpoint.ts";

/** Absolute paths. */
export interface ModelFolders {
  readonly checkpoint: string;
  /** Null without an adapter. */
  readonly adapter: string | null;
  /** Folders of the adapters that requests choose, by name. */
  readonly namedAdapters: ReadonlyMap<string, string>;
}

/** Downloads what is not in the cache folder. Throws like `resolveCheckpoint`. */
export async function resolveModel(
  config: Pick<
    EngineConfig,
    "model" | "loraAdapter" | "loraModules" | "cacheFolder" | "hub" | "gcsEmulatorUrl" | "azure" | "dtype" | "device"
  >,
  options: Pick<ResolveCheckpointOptions, "createS3Client" | "onProgress" | "signal">,
): Promise<ModelFolders> {
  const { model, loraAdapter = null, loraModules = [], cacheFolder, hub, gcsEmulatorUrl, azure } = config;
  const source = { ...options, variant: config, cacheFolder, hub, gcsEmulatorUrl, azure };
  const resolveAdapter = (path: string): Promise<string> => resolveCheckpoint(path, { ...source, content: "adapter" });
  const checkpoint = await resolveCheckpoint(model, source);
  const adapter = loraAdapter === null ? null : await resolveAdapter(loraAdapter);
  const namedAdapters = new Map<string, string>();
  for (const module of loraModules) {
    namedAdapters.set(
      module.name,
      await resolveAdapter(module.path).catch((error: unknown) => {
        throw aboutModule(error, module);
      }),
    );
  }
  return { checkpoint, adapter, namedAdapters };
}

/** The error with the adapter's name, and the setting that lists adapters. */
function aboutModule(error: unknown, { name }: LoraModule): unknown {
  if (!(error instanceof EngineError) || error.setting !== "loraAdapter") return error;
  return new EngineError(error.code, `The LoRA adapter ${name} cannot be loaded. ${error.message}`, {
    cause: error,
    setting: "loraModules",
  });
}
