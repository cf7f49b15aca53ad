/** Reads the recordings of test/fixtures/quantised/record.py: checkpoints in the formats of quantised uploads. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { GoldenCase } from "./goldens.ts";
import { writeHubCheckpoint, type HubCase } from "./hub-checkpoints.ts";

const folder = fileURLToPath(new URL("../../fixtures/quantised/", import.meta.url));

export const quantisedCheckpoints: readonly string[] = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && existsSync(join(folder, entry.name, "config.json")))
  .map(({ name }) => name)
  .sort();

export interface QuantisedCheckpoint {
  readonly checkpointFolder: string;
  readonly golden: GoldenCase;
  /** By module: SHA-256 of the weights that PyTorch dequantises, as float32 without negative zeros. */
  readonly weightHashes: Readonly<Record<string, string>>;
}

export function loadQuantisedCheckpoint(name: string): QuantisedCheckpoint {
  const checkpointFolder = join(folder, name);
  const { promptTokenIds, greedyTokenIds, weights } = JSON.parse(
    readFileSync(join(checkpointFolder, "goldens.json"), "utf8"),
  ) as { promptTokenIds: number[]; greedyTokenIds: number[]; weights: Record<string, string> };
  const bytes = readFileSync(join(checkpointFolder, "goldens.safetensors"));
  const dataOffset = 8 + Number(bytes.readBigUInt64LE());
  const logits = new Float32Array(
    bytes.buffer.slice(bytes.byteOffset + dataOffset, bytes.byteOffset + bytes.byteLength),
  );
  return {
    checkpointFolder,
    golden: {
      name,
      messages: [],
      pictures: [],
      promptTokenIds,
      greedyTokenIds,
      logits,
      pixelValues: null,
      imageFeatures: null,
    },
    weightHashes: weights,
  };
}

/**
 * The hub's checkpoint of Qwen2.5-VL whose decoder is in AWQ, and whose vision tower is not.
 *
 * @param target An empty folder.
 */
export async function writeVisionCheckpoint(target: string): Promise<readonly HubCase[]> {
  const source = join(folder, "vision-awq");
  await writeHubCheckpoint("qwen2.5-vl", "v4", target);
  await copyFile(join(source, "model.safetensors"), join(target, "model.safetensors"));
  const configFile = join(target, "config.json");
  const readJson = async (file: string): Promise<object> => JSON.parse(await readFile(file, "utf8")) as object;
  const quantization = await readJson(join(source, "quantization.json"));
  await writeFile(configFile, JSON.stringify({ ...(await readJson(configFile)), quantization_config: quantization }));
  return (await readJson(join(source, "goldens.json"))) as HubCase[];
}
