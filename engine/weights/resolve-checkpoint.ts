/**
 * Resolves the reference of a checkpoint or an adapter to a local folder: a path, an address in an object store, or a
 * repository of the hub.
 */
import type { S3Client } from "@aws-sdk/client-s3";

import type { AzureConfig, HubConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { objectAddressForms, parseModelReference } from "../contract/model-reference.ts";
import type { HubRepository, ObjectLocation, ObjectScheme } from "../contract/model-reference.ts";
import type { DownloadCheckpointOptions } from "./download-checkpoint.ts";
import type { RemoteObjects } from "./objects/remote-objects.ts";
import { checkFolder, isFile, isFolder, settingOf } from "./sound-folder.ts";

export interface ResolveCheckpointOptions extends DownloadCheckpointOptions {
  /** Called only for an `s3://` reference. The client is destroyed before the call returns. */
  readonly createS3Client?: (() => S3Client) | undefined;
  /** See `EngineConfig`. */
  readonly gcsEmulatorUrl?: string | null | undefined;
  /** Used only for an `az://` reference. */
  readonly azure?: AzureConfig | undefined;
  /** Used only for a repository of the hub. */
  readonly hub?: HubConfig | undefined;
}

/**
 * Returns the absolute path of a folder with config.json and safetensors files, or the files of a ready-made export; of
 * an adapter, with its two files. A folder takes precedence over a repository of the same name.
 *
 * @throws EngineError `invalid_configuration` (the folder, bucket or repository does not exist, is not allowed or not
 * reachable), `invalid_checkpoint` (a file of the checkpoint is missing or changed meanwhile), `aborted`.
 */
export async function resolveCheckpoint(reference: string, options: ResolveCheckpointOptions): Promise<string> {
  const { content = "checkpoint" } = options;
  const parsed = parseModelReference(reference);
  switch (parsed?.kind) {
    case "s3":
    case "gs":
    case "az":
      return downloadFromStore(reference, parsed, options);
    case "hub":
      if (parsed.yieldsToFolder && (await isFolder(reference))) return checkFolder(reference, reference, content);
      return downloadFromHub(reference, parsed, options);
    case "folder":
      if (await isFolder(parsed.path)) return checkFolder(parsed.path, reference, content);
      throw new EngineError(
        "invalid_configuration",
        (await isFile(parsed.path))
          ? `${parsed.path} is a file; ${content === "adapter" ? "an adapter" : "a checkpoint"} is a folder.`
          : `There is no folder ${parsed.path}.`,
        { setting: settingOf[content] },
      );
    case undefined:
  }
  throw new EngineError(
    "invalid_configuration",
    `The ${content === "adapter" ? "LoRA adapter" : "model"} ${reference} is neither a folder nor a repository org/name of the hub nor ${objectAddressForms}.`,
    { setting: settingOf[content] },
  );
}

async function downloadFromStore(
  reference: string,
  location: ObjectLocation & { readonly kind: ObjectScheme },
  options: ResolveCheckpointOptions,
): Promise<string> {
  // A start from a folder loads no client of a store.
  const { downloadCheckpoint } = await import("./download-checkpoint.ts");
  const download = (remote: RemoteObjects): Promise<string> => downloadCheckpoint(remote, options);
  switch (location.kind) {
    case "s3": {
      if (options.createS3Client === undefined) throw lacksSettings(reference, "an S3 client");
      const { createS3Objects } = await import("./objects/s3-objects.ts");
      const client = options.createS3Client();
      try {
        return await download(createS3Objects(client, location));
      } finally {
        client.destroy();
      }
    }
    case "gs": {
      const { createGcsObjects } = await import("./objects/gcs-objects.ts");
      const url = options.gcsEmulatorUrl ?? null;
      return download(createGcsObjects(location, { isAnonymous: url !== null, ...(url !== null && { url }) }));
    }
    case "az": {
      if (options.azure === undefined) throw lacksSettings(reference, "settings of Azure");
      const { createAzureObjects } = await import("./objects/azure-objects.ts");
      return download(createAzureObjects(location, options.azure));
    }
  }
  return location.kind satisfies never;
}

function lacksSettings(reference: string, what: string): EngineError {
  return new EngineError("invalid_configuration", `${reference} needs ${what}, and none are configured.`);
}

async function downloadFromHub(
  reference: string,
  repository: HubRepository,
  options: ResolveCheckpointOptions,
): Promise<string> {
  const { hub, cacheFolder, variant = { dtype: "float32", device: "cpu" }, content, onProgress, signal } = options;
  if (hub === undefined) {
    throw new EngineError("invalid_configuration", `${reference} needs settings of a hub, and none are configured.`);
  }
  const { resolveHubCheckpoint } = await import("./hub/resolve-hub-checkpoint.ts");
  try {
    return await resolveHubCheckpoint(repository, hub, { cacheFolder, variant, content, onProgress, signal });
  } catch (error) {
    const isMistakable = repository.yieldsToFolder && error instanceof EngineError;
    if (!isMistakable || error.code !== "invalid_configuration") throw error;
    const { code, message, setting } = error;
    throw new EngineError(code, `There is no folder ${reference}, so it is a repository of the hub. ${message}`, {
      cause: error,
      ...(setting !== null && { setting }),
    });
  }
}
