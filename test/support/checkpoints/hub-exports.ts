/** Reads the recordings of test/fixtures/hub-exports/record.py: exports of the checkpoints in test/fixtures/hub. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { copyFile, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { hubCases, writeHubCheckpoint, type Generation, type HubCase } from "./hub-checkpoints.ts";

const exportsFolder = fileURLToPath(new URL("../../fixtures/hub-exports/", import.meta.url));

/** Checkpoints that have several exports; all others have the export's name. */
const checkpoints: Readonly<Record<string, string>> = { "gemma3-token-types": "gemma3" };

/** Copies the checkpoint's configuration of one generation and the export into an empty folder. */
export async function writeHubExport(name: string, generation: Generation, folder: string): Promise<void> {
  await writeHubCheckpoint(checkpoints[name] ?? name, generation, folder);
  const onnxFolder = join(folder, "onnx");
  await mkdir(onnxFolder);
  for (const file of await readdir(join(exportsFolder, name, "onnx"))) {
    await copyFile(join(exportsFolder, name, "onnx", file), join(onnxFolder, file));
    await copyFile(join(folder, "model.safetensors"), join(onnxFolder, `${file}_data`));
  }
  await rm(join(folder, "model.safetensors"));
}

/** The answers of transformers: those of the checkpoint, unless the export computes others. */
export function hubExportCases(name: string): readonly HubCase[] {
  const own = join(exportsFolder, name, "goldens.json");
  if (!existsSync(own)) return hubCases(checkpoints[name] ?? name);
  return JSON.parse(readFileSync(own, "utf8")) as HubCase[];
}

export const hubExports: readonly string[] = readdirSync(exportsFolder).filter((name) =>
  existsSync(join(exportsFolder, name, "onnx")),
);
