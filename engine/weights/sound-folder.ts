/** Checks that a folder has the files of a checkpoint or an adapter, without opening them. */
import { lstat, readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";

import { EngineError } from "../contract/errors.ts";
import {
  adapterConfigName,
  adapterWeightsName,
  indexFileName,
  lacks,
  singleFileName,
  weightFileNames,
  type StoredContent,
} from "./checkpoint-files.ts";
import { isOnnxExport, onnxFolder } from "./onnx-variants.ts";

/** The settings that name them. */
export const settingOf = { checkpoint: "model", adapter: "loraAdapter" } as const;

export async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() === true;
}

export async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isFile() === true;
}

/**
 * Returns the absolute path.
 *
 * @param reference Name of the checkpoint for the errors.
 * @throws EngineError `invalid_configuration` if there is no folder, `invalid_checkpoint` for a missing file.
 */
export async function checkFolder(
  path: string,
  reference: string,
  content: StoredContent = "checkpoint",
): Promise<string> {
  const folder = resolve(path);
  if (!(await isFolder(folder))) {
    throw new EngineError("invalid_configuration", `The ${content} ${reference} is not a folder.`, {
      setting: settingOf[content],
    });
  }
  // A broken link counts as present; opening it reports the error.
  const present = async (fileName: string): Promise<boolean> =>
    (await lstat(join(folder, fileName)).catch(() => null)) !== null;
  const namesOf = (path: string): Promise<string[]> => readdir(path).catch((): string[] => []);
  if (content === "adapter") {
    for (const name of [adapterConfigName, adapterWeightsName]) {
      if (!(await present(name))) throw lacks(reference, name, await namesOf(folder), content);
    }
    return folder;
  }
  if (!(await present("config.json"))) throw lacks(reference, "config.json", await namesOf(folder));
  const hasSafetensors = (await present(singleFileName)) || (await present(indexFileName));
  if (!hasSafetensors && !isOnnxExport(await namesOf(join(folder, onnxFolder)))) {
    throw lacks(reference, weightFileNames, await namesOf(folder));
  }
  return folder;
}
