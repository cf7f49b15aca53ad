/** What a download needs of an object store: a list of the objects below a prefix, and ranges of their bytes. */
import { EngineError } from "../../contract/errors.ts";
import type { ReadRange, RemoteFile } from "../parallel-ranges.ts";
import type { Listing } from "../remote-checkpoint.ts";
import type { Checksum } from "./checksum.ts";

export interface RemoteObject extends RemoteFile {
  readonly key: string;
  /** Names the version of the object. Another version is never mixed with this one. */
  readonly eTag: string;
  /** Absent if the store lists none. */
  readonly checksum?: Checksum;
  /** `gzip`, for example, if the object is stored compressed; absent for plain bytes. */
  readonly contentEncoding?: string;
}

export interface RemoteObjects {
  /** Such as `gs://bucket/prefix/`. */
  readonly reference: string;
  /**
   * Lists the objects and folders directly in a folder below the prefix (`""` is the prefix itself).
   *
   * @throws EngineError `invalid_configuration` that names bucket and prefix (absent, not allowed, not reachable).
   */
  readonly list: (folder: string, signal: AbortSignal | undefined) => Promise<Listing<RemoteObject>>;
  /**
   * Reads an object in the listed version. Besides the errors of `ReadRange`: EngineError `invalid_checkpoint` if the
   * object vanished or changed since, `invalid_configuration` if it may not be read, `aborted`.
   */
  readonly createReader: (object: RemoteObject) => ReadRange;
}

/**
 * A checkpoint has at most some hundred files. A prefix with more objects is not a checkpoint and is not listed to its
 * end.
 */
const MAX_LISTED_OBJECTS = 10_000;

/** @throws EngineError `invalid_configuration` */
export function requireFewObjects(address: string, numObjects: number): void {
  if (numObjects <= MAX_LISTED_OBJECTS) return;
  throw new EngineError(
    "invalid_configuration",
    `${address} contains ${numObjects} objects or more; a checkpoint has at most ${MAX_LISTED_OBJECTS}.`,
  );
}
