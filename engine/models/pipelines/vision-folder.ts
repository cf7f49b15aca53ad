/** Reads what pipelines need of their settings and of a vision model's folder. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { describeError, shown } from "../../excerpt.ts";
import { parsePythonJson } from "../../weights/python-json.ts";
import type { PipelineParams } from "./pipeline.ts";

/**
 * The text of a parameter.
 *
 * @param meaning Completes "set it to …".
 * @throws EngineError `invalid_configuration` that names the parameter if it is missing or no text.
 */
export function requireTextParam(params: PipelineParams, name: string, meaning: string): string {
  const value = params[name];
  if (typeof value === "string" && value !== "") return value;
  const found = value === undefined || value === null ? "is missing" : `is ${shown(value)}`;
  throw new EngineError("invalid_configuration", `The pipeline parameter ${name} ${found}; set it to ${meaning}.`, {
    setting: "pipelineParams",
  });
}

/**
 * The parsed JSON file of a folder.
 *
 * @throws EngineError `invalid_configuration` if it does not exist, `invalid_checkpoint` if it is not JSON.
 */
export async function readFolderJson(folder: string, fileName: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(join(folder, fileName), "utf8");
  } catch (cause) {
    throw new EngineError("invalid_configuration", `${folder} has no readable ${fileName} (${describeError(cause)}).`, {
      cause,
      setting: "pipelineParams",
    });
  }
  try {
    return parsePythonJson(text);
  } catch (cause) {
    throw new EngineError("invalid_checkpoint", `${join(folder, fileName)} is not JSON (${describeError(cause)}).`, {
      cause,
    });
  }
}

/** preprocessor_config.json, or the part of processor_config.json that newer checkpoints have before it or instead. */
export async function readPreprocessor(folder: string): Promise<unknown> {
  const newer = (await readFolderJson(folder, "processor_config.json").catch(() => null)) as {
    readonly image_processor?: unknown;
  } | null;
  return newer?.image_processor ?? (await readFolderJson(folder, "preprocessor_config.json"));
}
