/** Makes a checkpoint reference into a folder on this machine: checks a path, downloads `s3://bucket/prefix`. */
import { hash } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";
import { EngineError } from "../errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import { indexFileName, parseWeightMap, singleFileName } from "./checkpoint.ts";
import type { WeightProgress } from "./progress.ts";
import { downloadObjects, type Download } from "./ranged-download.ts";
import { listObjects, TransientDownloadError, type S3Location, type S3Object } from "./s3-objects.ts";

/** Written last; holds what was downloaded. */
const completeMarker = ".complete.json";

/** What else of a checkpoint the engine may read; optimiser states, other formats and pictures stay where they are. */
const checkpointFile = /^[A-Za-z0-9_][\w.+-]*\.(json|jinja|txt|safetensors)$|^tokenizer\.model$/;

export interface ResolveCheckpointOptions {
  readonly cacheFolder: string;
  /** Called for an `s3://` reference only; the client is destroyed before the call returns. */
  readonly createS3Client?: (() => S3Client) | undefined;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Absolute path of a folder with config.json and safetensors files.
 *
 * A download goes into a folder named by what the listing says (keys, ETags, sizes), so it never changes once
 * complete: while nothing changed in the bucket a start costs one LIST, a changed object makes another folder, and
 * processes that do it at once write equal files. What was complete when a process was killed is not fetched again.
 *
 * @throws EngineError `invalid_configuration` (no such folder or bucket, no rights, not reached), `invalid_checkpoint`
 * (something of a checkpoint is missing, or changed meanwhile), `aborted`.
 */
export async function resolveCheckpoint(reference: string, options: ResolveCheckpointOptions): Promise<string> {
  const location = parseS3Reference(reference);
  if (location === null) return checkFolder(reference);
  if (options.createS3Client === undefined) {
    throw new EngineError("invalid_configuration", `${reference} needs an S3 client, and none is configured.`);
  }
  const client = options.createS3Client();
  try {
    return await downloadCheckpoint(client, location, options);
  } finally {
    client.destroy();
  }
}

function parseS3Reference(reference: string): S3Location | null {
  if (!reference.startsWith("s3://")) return null;
  const [bucket, ...path] = reference.slice("s3://".length).split("/");
  if (bucket === "") throw new EngineError("invalid_configuration", `${reference} names no bucket.`);
  const prefix = path.join("/").replace(/\/+$/, "");
  return { bucket, prefix: prefix === "" ? "" : `${prefix}/` };
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
  const present = async (fileName: string): Promise<boolean> =>
    (await stat(join(folder, fileName)).catch(() => null)) !== null;
  if (!(await present("config.json"))) throw lacks(reference, "config.json");
  if (!(await present(singleFileName)) && !(await present(indexFileName))) throw lacks(reference, weightFileNames);
  return folder;
}

const weightFileNames = `${singleFileName} and ${indexFileName}`;

function lacks(reference: string, fileName: string): EngineError {
  return new EngineError("invalid_checkpoint", `The checkpoint ${reference} lacks ${fileName}.`);
}

async function downloadCheckpoint(
  client: S3Client,
  location: S3Location,
  { cacheFolder, onProgress, signal }: ResolveCheckpointOptions,
): Promise<string> {
  const reference = `s3://${location.bucket}/${location.prefix}`;
  const listed = await listObjects(client, location, signal).catch((error: unknown) => {
    if (!(error instanceof TransientDownloadError)) throw error;
    throw new EngineError("invalid_configuration", error.message, { cause: error });
  });
  const objects = new Map(
    listed.filter(({ name }) => checkpointFile.test(name)).map((object) => [object.name, object]),
  );
  if (!objects.has("config.json")) throw lacks(reference, "config.json");
  if (!objects.has(singleFileName) && !objects.has(indexFileName)) throw lacks(reference, weightFileNames);

  const manifest = JSON.stringify({ reference, objects: [...objects.values()] }, null, 1);
  const folder = resolve(cacheFolder, "checkpoints", hash("sha256", manifest));
  const fetchMissing = async (wanted: readonly S3Object[]): Promise<void> => {
    const downloads: Download[] = [];
    for (const object of wanted) {
      const file = join(folder, object.name);
      if (!(await hasSize(file, object.byteLength))) downloads.push({ object, file });
    }
    await downloadObjects(client, downloads, { onProgress, signal });
  };

  const markerFile = join(folder, completeMarker);
  const isComplete = (await readFile(markerFile, "utf8").catch(() => "")) === manifest;
  const index = objects.get(indexFileName);
  const isSharded = index !== undefined && !objects.has(singleFileName);
  if (isSharded) await fetchMissing([index]);
  const weightNames = isSharded ? await readShardNames(folder, reference, objects) : new Set([singleFileName]);
  // Repositories often hold their weights twice, under other names.
  await fetchMissing([...objects.values()].filter(({ name }) => isWanted(name, weightNames)));
  if (!isComplete) await writeAtomically(markerFile, (temporaryFile) => writeFile(temporaryFile, manifest));
  return folder;
}

function isWanted(name: string, weightNames: ReadonlySet<string>): boolean {
  return !name.endsWith(".safetensors") || weightNames.has(name);
}

async function readShardNames(
  folder: string,
  reference: string,
  objects: ReadonlyMap<string, S3Object>,
): Promise<ReadonlySet<string>> {
  const shardNames = new Set(Object.values(parseWeightMap(await readFile(join(folder, indexFileName)))));
  for (const shardName of shardNames) {
    if (!objects.has(shardName)) throw lacks(reference, `the shard ${shardName} that ${indexFileName} names`);
  }
  return shardNames;
}

/** Files appear whole and are never altered, so the size tells a complete one from a damaged disk's. */
async function hasSize(file: string, byteLength: number): Promise<boolean> {
  const stats = await stat(file).catch(() => null);
  return stats?.isFile() === true && stats.size === byteLength;
}
