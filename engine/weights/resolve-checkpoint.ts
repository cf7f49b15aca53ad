/** Resolves a checkpoint reference to a local folder: checks a path or downloads `s3://bucket/prefix`. */
import { lstat, readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { indexFileName, lacks, singleFileName, weightFileNames } from "./checkpoint-files.ts";
import type { DownloadCheckpointOptions } from "./download-checkpoint.ts";
import { isOnnxExport, onnxFolder } from "./onnx-variants.ts";
import type { S3Location } from "./s3-objects.ts";

export interface ResolveCheckpointOptions extends DownloadCheckpointOptions {
  /** Called only for an `s3://` reference. The client is destroyed before the call returns. */
  readonly createS3Client?: (() => S3Client) | undefined;
}

/**
 * Returns the absolute path of a folder with config.json and safetensors files, or the files of a ready-made export.
 *
 * @throws EngineError `invalid_configuration` (the folder or bucket does not exist, is not allowed or not reachable),
 * `invalid_checkpoint` (a file of the checkpoint is missing or changed meanwhile), `aborted`.
 */
export async function resolveCheckpoint(reference: string, options: ResolveCheckpointOptions): Promise<string> {
  const location = parseS3Reference(reference);
  if (location === null) return checkFolder(reference);
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

function parseS3Reference(reference: string): S3Location | null {
  if (!reference.startsWith("s3://")) return null;
  const [bucket, ...path] = reference.slice("s3://".length).split("/");
  if (bucket === "") throw new EngineError("invalid_configuration", `${reference} does not name a bucket.`);
  const prefix = path.join("/").replace(/\/+$/, "");
  return { bucket: bucket!, prefix: prefix === "" ? "" : `${prefix}/` };
}

async function checkFolder(reference: string): Promise<string> {
  const folder = resolve(reference);
  const stats = await stat(folder).catch(() => null);
  if (stats?.isDirectory() !== true) {
    throw new EngineError(
      "invalid_configuration",
      `The model ${reference} is neither a folder nor an s3:// reference.`,
    );
  }
  // A broken link counts as present; opening it reports the error.
  const present = async (fileName: string): Promise<boolean> =>
    (await lstat(join(folder, fileName)).catch(() => null)) !== null;
  if (!(await present("config.json"))) throw lacks(reference, "config.json");
  const hasSafetensors = (await present(singleFileName)) || (await present(indexFileName));
  if (!hasSafetensors && !isOnnxExport(await readdir(join(folder, onnxFolder)).catch((): string[] => []))) {
    throw lacks(reference, weightFileNames);
  }
  return folder;
}
