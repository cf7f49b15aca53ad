/** Checkpoints of random weights in known shapes, made on arrival, and the graphs built from them. */
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

import type { DtypeName } from "../../engine/contract/config.ts";
import type { BuiltModel, KvLayout } from "../../engine/models/built-model.ts";
import type { KvPrecision } from "../../engine/models/graph-context.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { buildModel } from "../support/engine/shipped-models.ts";
import type { ExperimentDevice, HalfType } from "./experiment.ts";
import { encode, randomNumbers } from "./numbers.ts";

export interface ModelShape {
  readonly name: string;
  readonly numLayers: number;
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly vocabSize: number;
}

const maxPositions = 16_384;

export const tinyShape: ModelShape = {
  name: "tiny",
  numLayers: 2,
  hiddenSize: 128,
  numHeads: 4,
  numKvHeads: 2,
  headDim: 32,
  intermediateSize: 256,
  vocabSize: 512,
};

/** SmolLM2-135M's. */
export const smallShape: ModelShape = {
  name: "135m",
  numLayers: 30,
  hiddenSize: 576,
  numHeads: 9,
  numKvHeads: 3,
  headDim: 64,
  intermediateSize: 1536,
  vocabSize: 49_152,
};

/** Llama 3 8B's. */
export const largeShape: ModelShape = {
  name: "8b",
  numLayers: 32,
  hiddenSize: 4096,
  numHeads: 32,
  numKvHeads: 8,
  headDim: 128,
  intermediateSize: 14_336,
  vocabSize: 128_256,
};

interface WeightSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** Null for the ones of a norm. */
  readonly scale: number | null;
}

function weightSpecs(shape: ModelShape): WeightSpec[] {
  const { hiddenSize, headDim, intermediateSize, vocabSize } = shape;
  const matrix = (name: string, rows: number, columns: number): WeightSpec => ({
    name: `${name}.weight`,
    shape: [rows, columns],
    // A power of two, so that few different ones are made; about 1 / sqrt(columns), which keeps activations' size.
    scale: 2 ** -Math.round(Math.log2(columns) / 2),
  });
  const norm = (name: string): WeightSpec => ({ name: `${name}.weight`, shape: [hiddenSize], scale: null });
  const specs = [matrix("model.embed_tokens", vocabSize, hiddenSize), norm("model.norm")];
  specs.push(matrix("lm_head", vocabSize, hiddenSize));
  for (let layer = 0; layer < shape.numLayers; layer++) {
    const prefix = `model.layers.${layer}`;
    specs.push(
      norm(`${prefix}.input_layernorm`),
      norm(`${prefix}.post_attention_layernorm`),
      matrix(`${prefix}.self_attn.q_proj`, shape.numHeads * headDim, hiddenSize),
      matrix(`${prefix}.self_attn.k_proj`, shape.numKvHeads * headDim, hiddenSize),
      matrix(`${prefix}.self_attn.v_proj`, shape.numKvHeads * headDim, hiddenSize),
      matrix(`${prefix}.self_attn.o_proj`, hiddenSize, shape.numHeads * headDim),
      matrix(`${prefix}.mlp.gate_proj`, intermediateSize, hiddenSize),
      matrix(`${prefix}.mlp.up_proj`, intermediateSize, hiddenSize),
      matrix(`${prefix}.mlp.down_proj`, hiddenSize, intermediateSize),
    );
  }
  return specs;
}

/**
 * Numbers that are made for each scale; longer tensors repeat them, each from another place. Odd, so that no two rows of
 * the head are equal: greedy sampling would have to read the whole row to find the first of many equal logits.
 */
const numRandom = 2 ** 22 + 1;

/** Writes the folder unless it is there already; returns it. 8 billion weights take about a minute. */
function writeRandomCheckpoint(shape: ModelShape, elementType: HalfType, parentFolder: string): string {
  const folder = join(parentFolder, `${shape.name}-${elementType}`);
  if (existsSync(folder)) return folder;
  const writing = `${folder}.${process.pid}`;
  rmSync(writing, { recursive: true, force: true });
  mkdirSync(writing, { recursive: true });
  const config = {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    hidden_act: "silu",
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    max_position_embeddings: maxPositions,
    num_attention_heads: shape.numHeads,
    num_hidden_layers: shape.numLayers,
    num_key_value_heads: shape.numKvHeads,
    head_dim: shape.headDim,
    rms_norm_eps: 1e-5,
    rope_theta: 500_000,
    tie_word_embeddings: false,
    torch_dtype: elementType,
    vocab_size: shape.vocabSize,
    bos_token_id: 0,
    eos_token_id: 1,
  };
  writeFileSync(join(writing, "config.json"), JSON.stringify(config));
  writeWeights(join(writing, "model.safetensors"), weightSpecs(shape), elementType);
  renameSync(writing, folder);
  return folder;
}

function writeWeights(path: string, specs: readonly WeightSpec[], elementType: HalfType): void {
  const dtype = elementType === "bfloat16" ? "BF16" : "F16";
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const spec of specs) {
    const end = offset + 2 * numElements(spec);
    header[spec.name] = { dtype, shape: spec.shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(json.length / 8) * 8, " ");
  padded.set(json);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const random = new Map<number, Uint8Array>();
  const file = openSync(path, "w");
  try {
    writeSync(file, length);
    writeSync(file, padded);
    specs.forEach((spec, index) => {
      const count = numElements(spec);
      if (spec.scale === null) return writeAll(file, bytesOf(encode(elementType, new Float32Array(count).fill(1))));
      let numbers = random.get(spec.scale);
      if (numbers === undefined) {
        // Uniform numbers of this deviation.
        numbers = bytesOf(encode(elementType, randomNumbers(numRandom, 5, spec.scale * Math.sqrt(3))));
        random.set(spec.scale, numbers);
      }
      let start = (index * 2_097_143 * 2) % numbers.length;
      for (let left = 2 * count; left > 0;) {
        const piece = numbers.subarray(start, Math.min(numbers.length, start + left));
        writeAll(file, piece);
        left -= piece.length;
        start = 0;
      }
    });
  } finally {
    closeSync(file);
  }
}

function numElements({ shape }: WeightSpec): number {
  return shape.reduce((product, size) => product * size, 1);
}

function bytesOf(values: { readonly buffer: ArrayBufferLike; readonly byteLength: number }): Uint8Array {
  return new Uint8Array(values.buffer, 0, values.byteLength);
}

function writeAll(file: number, bytes: Uint8Array): void {
  for (let offset = 0; offset < bytes.length;) offset += writeSync(file, bytes, offset);
}

export interface RandomModelOptions {
  readonly shape: ModelShape;
  readonly dtype: DtypeName;
  readonly device: ExperimentDevice;
  readonly kvLayout: KvLayout;
  /** Default: the activations' type. */
  readonly kvPrecision?: KvPrecision;
  readonly maxModelLen: number;
  /** Receives the checkpoint and everything built from it. */
  readonly folder: string;
}

export async function buildRandomModel(options: RandomModelOptions): Promise<BuiltModel> {
  const { shape, dtype, device, kvLayout, kvPrecision, maxModelLen, folder } = options;
  const stored = dtype === "float16" ? "float16" : "bfloat16";
  const cacheFolder = join(folder, "cache");
  const checkpoint = await openCheckpoint(writeRandomCheckpoint(shape, stored, folder), { cacheFolder });
  // 8 billion weights take minutes to quantise in a few threads.
  const numThreads = availableParallelism();
  const form = { kvLayout, ...(kvPrecision && { kvPrecision }) };
  return buildModel(checkpoint, { dtype, device, ...form, maxModelLen, cacheFolder, numThreads });
}

/** What the fused kernels for paged attention need, by head size; the CPU takes any. */
export function fastBlockSize(device: ExperimentDevice, headDim: number): number {
  if (device === "cpu") return 16;
  if (headDim <= 64) return 256;
  return headDim <= 128 ? 128 : 64;
}

/** Bytes that one decode step reads at least: all weights but the embedding table, of which it reads rows. */
export function weightBytesPerStep(shape: ModelShape, bytesPerWeight: number): number {
  const [embedding, ...others] = weightSpecs(shape).map(numElements);
  void embedding;
  return others.reduce((sum, count) => sum + count, 0) * bytesPerWeight;
}
