/** Checkpoints of retrieval models, made of hub checkpoints: a projection is added, and names are those of the format. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { writeHubCheckpoint } from "./hub-checkpoints.ts";
import { encodeWithHeader } from "./safetensors-writer.ts";
import { readSafetensors } from "./stored-rows.ts";

/** Numbers of a token's embedding. */
export const EMBEDDING_SIZE = 12;

export interface RetrieverFormat {
  /** Name of the hub checkpoint inside. */
  readonly model: string;
  readonly architecture: string;
  readonly rename: (this: void, name: string) => string;
  readonly projection: string;
  readonly hasBias: boolean;
  /** Whether the configuration of the model is nested in `vlm_config`. */
  readonly isNested: boolean;
}

/** As transformers, TomoroAI, OpenSearch-AI and colpali-engine write them. */
export const retrieverFormats: readonly RetrieverFormat[] = [
  {
    model: "qwen2-vl",
    architecture: "ColQwen2ForRetrieval",
    rename: (name) => name.replace(/^model\./u, "vlm.model.language_model.").replace(/^visual\./u, "vlm.model.visual."),
    projection: "embedding_proj_layer",
    hasBias: true,
    isNested: true,
  },
  {
    model: "qwen3-vl",
    architecture: "ColQwen3",
    rename: (name) => `vlm.${name}`,
    projection: "embedding_proj_layer",
    hasBias: false,
    isNested: false,
  },
  {
    model: "qwen3-vl",
    architecture: "OpsColQwen3Model",
    rename: (name) => name.replace(/^model\./u, ""),
    projection: "custom_text_proj",
    hasBias: false,
    isNested: false,
  },
  {
    model: "qwen3.5",
    architecture: "ColQwen3_5",
    rename: (name) => name.replace(/^model\./u, ""),
    projection: "custom_text_proj",
    hasBias: true,
    isNested: false,
  },
];

export interface ProjectionValues {
  /** [EMBEDDING_SIZE, hiddenSize]. */
  readonly weight: Float32Array;
  /** [EMBEDDING_SIZE]; zeros without a bias. */
  readonly bias: Float32Array;
}

/** Writes the checkpoint into an empty folder. */
export async function writeRetriever(format: RetrieverFormat, folder: string): Promise<ProjectionValues> {
  await writeHubCheckpoint(format.model, "v5", folder);
  const configPath = join(folder, "config.json");
  const config = JSON.parse(await readFile(configPath, "utf8")) as {
    readonly text_config: { readonly hidden_size: number };
  };
  const { architecture, isNested, rename, projection, hasBias } = format;
  const outside = isNested ? { model_type: "colqwen2", vlm_config: config } : { ...config, model_type: "retriever" };
  await writeFile(configPath, JSON.stringify({ ...outside, architectures: [architecture] }));
  const weight = waves(EMBEDDING_SIZE * config.text_config.hidden_size, 0.7);
  const bias = hasBias ? waves(EMBEDDING_SIZE, 1.3) : new Float32Array(EMBEDDING_SIZE);
  const path = join(folder, "model.safetensors");
  const { file, start, header } = await readSafetensors(path);
  const entries = Object.entries(header).map(([name, entry]) => [name === "__metadata__" ? name : rename(name), entry]);
  const numBytes = file.byteLength - start;
  const biasStart = numBytes + weight.byteLength;
  const shape = [EMBEDDING_SIZE, config.text_config.hidden_size];
  const added = {
    [`${projection}.weight`]: { dtype: "F32", shape, data_offsets: [numBytes, biasStart] },
    ...(hasBias && {
      [`${projection}.bias`]: {
        dtype: "F32",
        shape: [EMBEDDING_SIZE],
        data_offsets: [biasStart, biasStart + bias.byteLength],
      },
    }),
  };
  const data = [file.subarray(start), Buffer.from(weight.buffer), ...(hasBias ? [Buffer.from(bias.buffer)] : [])];
  await writeFile(path, encodeWithHeader({ ...Object.fromEntries(entries), ...added }, data));
  return { weight, bias };
}

function waves(length: number, step: number): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length }, (_, index) => Math.sin(index * step));
}
