/** Writes the bench's shape, or a larger one, as a GGUF file (llama.cpp's format, version 3) with random blocks of q8_0 or q4_0. */
import { closeSync, existsSync, openSync, renameSync, writeSync } from "node:fs";

import { layerWeightsOf, shape, vocabulary } from "./shape.ts";
import type { DecoderSize } from "./shape.ts";

export type GgufQuantisation = "q8_0" | "q4_0";

/** ggml's type numbers, and bytes per block of 32 weights. */
const ggmlTypes = { f32: 0, q4_0: 2, q8_0: 8 } as const;
const bytesPerBlock = { q4_0: 18, q8_0: 34 } as const;
const alignment = 32;

interface GgufTensor {
  readonly name: string;
  /** Innermost first. */
  readonly dimensions: readonly number[];
  readonly type: keyof typeof ggmlTypes;
}

class ByteWriter {
  readonly chunks: Buffer[] = [];
  length = 0;
  #push(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.length += chunk.length;
  }
  u32(value: number): this {
    const chunk = Buffer.alloc(4);
    chunk.writeUInt32LE(value);
    this.#push(chunk);
    return this;
  }
  u64(value: number): this {
    const chunk = Buffer.alloc(8);
    chunk.writeBigUInt64LE(BigInt(value));
    this.#push(chunk);
    return this;
  }
  f32(value: number): this {
    const chunk = Buffer.alloc(4);
    chunk.writeFloatLE(value);
    this.#push(chunk);
    return this;
  }
  text(value: string): this {
    const chunk = Buffer.from(value);
    this.u64(chunk.length);
    this.#push(chunk);
    return this;
  }
}

type MetadataValue = string | number | { readonly float: number } | readonly string[] | { readonly int32s: number[] };

function writeMetadata(writer: ByteWriter, key: string, value: MetadataValue): void {
  writer.text(key);
  if (typeof value === "string") writer.u32(8).text(value);
  else if (typeof value === "number") writer.u32(4).u32(value);
  else if ("float" in value) writer.u32(6).f32(value.float);
  else if ("int32s" in value) {
    writer.u32(9).u32(5).u64(value.int32s.length);
    for (const item of value.int32s) writer.u32(item);
  } else {
    writer.u32(9).u32(8).u64(value.length);
    for (const item of value) writer.text(item);
  }
}

function metadata(size: DecoderSize): [string, MetadataValue][] {
  const tokens = vocabulary();
  return [
    ["general.architecture", "llama"],
    ["general.name", "bench"],
    ["llama.context_length", size.maxPositionEmbeddings],
    ["llama.embedding_length", size.hiddenSize],
    ["llama.block_count", size.numLayers],
    ["llama.feed_forward_length", size.intermediateSize],
    ["llama.attention.head_count", size.numHeads],
    ["llama.attention.head_count_kv", size.numKvHeads],
    ["llama.attention.layer_norm_rms_epsilon", { float: size.rmsNormEps }],
    ["llama.rope.dimension_count", size.headDim],
    ["llama.rope.freq_base", { float: size.ropeTheta }],
    ["llama.vocab_size", size.vocabSize],
    ["tokenizer.ggml.model", "gpt2"],
    ["tokenizer.ggml.pre", "default"],
    ["tokenizer.ggml.tokens", tokens],
    ["tokenizer.ggml.token_type", { int32s: tokens.map((_, index) => (index < 2 ? 3 : 1)) }],
    ["tokenizer.ggml.merges", []],
    ["tokenizer.ggml.bos_token_id", 0],
    ["tokenizer.ggml.eos_token_id", 1],
  ];
}

function tensors(quantisation: GgufQuantisation, size: DecoderSize): GgufTensor[] {
  // llama.cpp's own quantizer keeps a tied embedding in 8 bits, and so does this file.
  const list: GgufTensor[] = [
    { name: "token_embd.weight", dimensions: [size.hiddenSize, size.vocabSize], type: "q8_0" },
    { name: "output_norm.weight", dimensions: [size.hiddenSize], type: "f32" },
  ];
  for (let layer = 0; layer < size.numLayers; layer++) {
    for (const norm of ["attn_norm", "ffn_norm"]) {
      list.push({ name: `blk.${layer}.${norm}.weight`, dimensions: [size.hiddenSize], type: "f32" });
    }
    for (const [, name, rows, columns] of layerWeightsOf(size)) {
      list.push({ name: `blk.${layer}.${name}.weight`, dimensions: [columns, rows], type: quantisation });
    }
  }
  return list;
}

function numBytes(tensor: GgufTensor): number {
  const numElements = tensor.dimensions.reduce((product, dimension) => product * dimension, 1);
  return tensor.type === "f32" ? numElements * 4 : (numElements / 32) * bytesPerBlock[tensor.type];
}

const padded = (bytes: number): number => Math.ceil(bytes / alignment) * alignment;

/** Blocks of one half-precision scale and random codes. Every value is small, so that nothing overflows. */
function randomBytes(tensor: GgufTensor): Buffer {
  const bytes = Buffer.alloc(padded(numBytes(tensor)));
  if (tensor.type === "f32") {
    for (let offset = 0; offset < numBytes(tensor); offset += 4) bytes.writeFloatLE(1, offset);
    return bytes;
  }
  const block = bytesPerBlock[tensor.type];
  const scale = tensor.type === "q8_0" ? 0x0c00 : 0x1c00; // about 2.4e-4 and 3.9e-3
  let state = 12345;
  for (let offset = 0; offset < numBytes(tensor); offset += block) {
    bytes.writeUInt16LE(scale, offset);
    for (let index = 2; index < block; index++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      bytes[offset + index] = state >>> 24;
    }
  }
  return bytes;
}

/** Writes `path` unless it exists. */
export function writeGguf(path: string, quantisation: GgufQuantisation, size: DecoderSize = shape): void {
  if (existsSync(path)) return;
  const list = tensors(quantisation, size);
  const entries = metadata(size);
  const header = new ByteWriter().u32(0x46554747).u32(3).u64(list.length).u64(entries.length);
  for (const [key, value] of entries) writeMetadata(header, key, value);
  let offset = 0;
  for (const tensor of list) {
    header.text(tensor.name).u32(tensor.dimensions.length);
    for (const dimension of tensor.dimensions) header.u64(dimension);
    header.u32(ggmlTypes[tensor.type]).u64(offset);
    offset += padded(numBytes(tensor));
  }
  const temporary = `${path}.${process.pid}`;
  const file = openSync(temporary, "w");
  for (const chunk of header.chunks) writeSync(file, chunk);
  writeSync(file, Buffer.alloc(padded(header.length) - header.length));
  for (const tensor of list) writeSync(file, randomBytes(tensor));
  closeSync(file);
  renameSync(temporary, path);
}
