/**
 * Locations of weights in separate files, as ONNX Runtime finds them.
 *
 * ONNX Runtime rejects absolute locations, and locations that leave the model's folder after resolving links. Weights
 * are in several folders (a checkpoint that may be read-only, the cache of converted weights). Graphs therefore name
 * them relative to the root of the file system, and sessions are told that the root is the model's folder. The files
 * are still mapped in place.
 */
import { isAbsolute, relative } from "node:path";

import { EngineError } from "../contract/errors.ts";

/** For `SessionOptions.externalDataFolder`. */
export const externalDataFolder = "/";

/** @param file Absolute path. */
export function externalDataLocation(file: string): string {
  if (!isAbsolute(file)) throw new EngineError("internal", `The path of external data, ${file}, is not absolute.`);
  return relative(externalDataFolder, file);
}
