/** Reads the recordings of test/fixtures/goldens/record.py. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { readSafetensorsHeader } from "../../../engine/weights/safetensors.ts";

/** Models whose decoders have no recurrent layers, and so a paged form that is compared on every device. */
export const pagedGoldenNames = [
  "llama",
  "qwen2",
  "qwen3",
  "mistral",
  "llava-default",
  "llava-full",
  "llava-qwen3",
  "llava-siglip",
  "smolvlm",
  "fuyu",
  "qwen2-vl",
] as const;

export const goldensFolder = fileURLToPath(new URL("../../fixtures/goldens/", import.meta.url));
const shippedCheckpoint = fileURLToPath(new URL("../../../models/fovea-shapes/", import.meta.url));

export interface GoldenMessage {
  readonly role: "user" | "assistant";
  readonly content: readonly ({ readonly type: "text"; readonly text: string } | { readonly type: "image" })[];
}

export interface GoldenCase {
  readonly name: string;
  readonly messages: readonly GoldenMessage[];
  /** Files of the `pictures` folder, one per image part. */
  readonly pictures: readonly string[];
  readonly promptTokenIds: readonly number[];
  readonly greedyTokenIds: readonly number[];
  /** For ready-made exports, by dtype: the tokens that onnxruntime chooses with a quantised variant. */
  readonly variantTokenIds?: Readonly<Record<string, readonly number[]>>;
  /** Rows of [time, rows, columns] of patches, for models that take pictures in their own sizes. */
  readonly grids?: readonly (readonly [number, number, number])[];
  /** [3][tokens of prompt and answer], for models with three-axis positions. */
  readonly positions?: readonly (readonly number[])[];
  /** Row-major [32, vocabSize]: the logits from which each greedy token was chosen; for exports, the first few. */
  readonly logits: Float32Array;
  /** Row-major [numImages, 3, height, width]; null without images. */
  readonly pixelValues: Float32Array | null;
  /** Row-major [numImages, numImageTokens, hiddenSize]; null without images. */
  readonly imageFeatures: Float32Array | null;
}

export interface Goldens {
  readonly name: string;
  readonly checkpointFolder: string;
  readonly cases: readonly GoldenCase[];
}

export const goldenCheckpoints = [
  "llava-default",
  "llava-full",
  "llama",
  "qwen2",
  "qwen3",
  "qwen3-moe",
  "qwen3.5",
  "lfm2",
  "lfm3",
  "mistral",
  "fovea-shapes",
] as const;

/** @param name Name of a folder below `test/fixtures/goldens/`. */
export async function loadGoldens(name: string): Promise<Goldens> {
  const folder = join(goldensFolder, name);
  const rows = JSON.parse(await readFile(join(folder, "goldens.json"), "utf8")) as GoldenCase[];
  const tensorFile = join(folder, "goldens.safetensors");
  const tensors = (await readSafetensorsHeader(tensorFile))!;
  const bytes = await readFile(tensorFile);
  const values = (key: string): Float32Array | null => {
    const tensor = tensors.get(key);
    if (tensor === undefined) return null;
    return new Float32Array(bytes.buffer.slice(bytes.byteOffset + tensor.byteOffset).slice(0, tensor.byteLength));
  };
  const cases = rows.map((row) =>
    Object.assign(row, {
      logits: values(`${row.name}.logits`)!,
      pixelValues: values(`${row.name}.pixel_values`),
      imageFeatures: values(`${row.name}.image_features`),
    }),
  );
  return { name, checkpointFolder: name === "fovea-shapes" ? shippedCheckpoint : folder, cases };
}

/** The picture as a `data:` reference. */
export async function pictureReference(name: string): Promise<string> {
  const bytes = await readFile(join(goldensFolder, "pictures", name));
  return `data:image/png;base64,${bytes.toString("base64")}`;
}
