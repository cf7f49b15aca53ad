/** Resolves a checkpoint reference to a local folder: a path, `s3://bucket/prefix`, or a repository of the hub. */
import type { S3Client } from "@aws-sdk/client-s3";

import type { HubConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { parseModelReference } from "../contract/model-reference.ts";
import type { HubRepository } from "../contract/model-reference.ts";
import type { DownloadCheckpointOptions } from "./download-checkpoint.ts";
import type { S3Location } from "./s3-objects.ts";
import { checkFolder, isFolder } from "./sound-folder.ts";

export interface ResolveCheckpointOptions extends DownloadCheckpointOptions {
  /** Called only for an `s3://` reference. The client is destroyed before the call returns. */
  readonly createS3Client?: (() => S3Client) | undefined;
  /** Used only for a repository of the hub. */
  readonly hub?: HubConfig | undefined;
}

/**
 * Returns the absolute path of a folder with config.json and safetensors files, or the files of a ready-made export. A
 * folder takes precedence over a repository of the same name.
 *
 * @throws EngineError `invalid_configuration` (the folder, bucket or repository does not exist, is not allowed or not
 * reachable), `invalid_checkpoint` (a file of the checkpoint is missing or changed meanwhile), `aborted`.
 */
export async function resolveCheckpoint(reference: string, options: ResolveCheckpointOptions): Promise<string> {
  const parsed = parseModelReference(reference);
  switch (parsed?.kind) {
    case "s3":
      return downloadFromS3(reference, parsed, options);
    case "hub":
      if (parsed.yieldsToFolder && (await isFolder(reference))) return checkFolder(reference, reference);
      return downloadFromHub(reference, parsed, options);
    case "folder":
      if (await isFolder(parsed.path)) return checkFolder(parsed.path, reference);
      break;
    case undefined:
  }
  throw new EngineError(
    "invalid_configuration",
    `The model ${reference} is neither a folder nor a repository org/name of the hub nor s3://bucket/prefix.`,
  );
}

async function downloadFromS3(
  reference: string,
  location: S3Location,
  options: ResolveCheckpointOptions,
): Promise<string> {
  if (options.createS3Client === undefined) {
    throw new EngineError("invalid_configuration", `${reference} needs an S3 client, and none is configured.`);
  }
  const client = options.createS3Client();
  try {
    // A start from a folder avoids the AWS SDK, which takes longer to load than everything else here.
    const { downloadCheckpoint } = await import("./download-checkpoint.ts");
    return await downloadCheckpoint(client, location, options);
  } finally {
    client.destroy();
  }
}

async function downloadFromHub(
  reference: string,
  repository: HubRepository,
  { hub, cacheFolder, variant = { dtype: "float32", device: "cpu" }, onProgress, signal }: ResolveCheckpointOptions,
): Promise<string> {
  if (hub === undefined) {
    throw new EngineError("invalid_configuration", `${reference} needs settings of a hub, and none are configured.`);
  }
  const { resolveHubCheckpoint } = await import("./hub/resolve-hub-checkpoint.ts");
  try {
    return await resolveHubCheckpoint(repository, hub, { cacheFolder, variant, onProgress, signal });
  } catch (error) {
    const isMistakable = repository.yieldsToFolder && error instanceof EngineError;
    if (!isMistakable || error.code !== "invalid_configuration") throw error;
    const { code, message, setting } = error;
    const options = { cause: error, ...(setting !== null && { setting }) };
    throw new EngineError(
      code,
      `There is no folder ${reference}, so it is a repository of the hub. ${message}`,
      options,
    );
  }
}
