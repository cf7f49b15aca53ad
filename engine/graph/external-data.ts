/**
 * How ONNX Runtime finds weights that lie in files of their own.
 *
 * It refuses absolute locations, and locations that leave the model's folder once links are followed. Weights lie in
 * several folders (a checkpoint that may be read-only, the cache of converted weights), so graphs name them relative to
 * the root of the file system, which sessions must be told to be the model's folder. The files are mapped in place all
 * the same.
 */
import { isAbsolute, relative } from "node:path";
import { EngineError } from "../contract/errors.ts";

/** For `SessionOptions.externalDataFolder`. */
export const externalDataFolder = "/";

/** @param file Absolute path. */
export function externalDataLocation(file: string): string {
  if (!isAbsolute(file)) throw new EngineError("internal", `External data ${file} is not named by an absolute path.`);
  return relative(externalDataFolder, file);
}
