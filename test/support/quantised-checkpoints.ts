/** Reads the recordings of test/fixtures/quantised/record.py: checkpoints in the formats of quantised uploads. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { GoldenCase } from "./goldens.ts";

const folder = fileURLToPath(new URL("../fixtures/quantised/", import.meta.url));

export const quantisedCheckpoints: readonly string[] = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
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
