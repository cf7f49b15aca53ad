/**
 * Writes Hugging Face checkpoints of random weights (bfloat16): by default the bench's shape (Llama, tied embeddings).
 */
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";

import { fillRandom, layerWeightsOf, shape, vocabulary } from "./shape.ts";
import type { DecoderSize } from "./shape.ts";

export interface CheckpointTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Null for the ones of a norm. */
  readonly standardDeviation: number | null;
  /** Bytes of another type than bfloat16. */
  readonly raw?: { readonly dtype: "I8" | "I32" | "F16"; readonly numBytes: number; readonly make: () => Uint8Array };
}

/** @param prefix Prefix of every name; `model.` for a decoder alone. */
export function decoderTensors(prefix: string, size: DecoderSize = shape): CheckpointTensor[] {
  const list: CheckpointTensor[] = [
    { name: `${prefix}embed_tokens.weight`, shape: [size.vocabSize, size.hiddenSize], standardDeviation: 0.05 },
    { name: `${prefix}norm.weight`, shape: [size.hiddenSize], standardDeviation: null },
  ];
  for (let layer = 0; layer < size.numLayers; layer++) {
    for (const norm of ["input_layernorm", "post_attention_layernorm"]) {
      list.push({
        name: `${prefix}layers.${layer}.${norm}.weight`,
        shape: [size.hiddenSize],
        standardDeviation: null,
      });
    }
    for (const [name, , rows, columns] of layerWeightsOf(size)) {
      const tensorName = `${prefix}layers.${layer}.${name}.weight`;
      list.push({ name: tensorName, shape: [rows, columns], standardDeviation: 0.8 / Math.sqrt(columns) });
    }
  }
  return list;
}

const numElements = (tensor: CheckpointTensor): number => tensor.shape.reduce((product, size) => product * size, 1);

function toBfloat16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let index = 0; index < words.length; index++) halves[index] = words[index]! >>> 16;
  return halves;
}

function writeWeights(path: string, list: readonly CheckpointTensor[]): void {
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const tensor of list) {
    const end = offset + (tensor.raw?.numBytes ?? numElements(tensor) * 2);
    header[tensor.name] = { dtype: tensor.raw?.dtype ?? "BF16", shape: tensor.shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Math.ceil(json.length / 8) * 8;
  const lengthBytes = Buffer.alloc(8);
  lengthBytes.writeBigUInt64LE(BigInt(length));
  const file = openSync(path, "w");
  writeSync(file, lengthBytes);
  writeSync(file, Buffer.concat([json, Buffer.alloc(length - json.length, " ")]));
  for (const [index, tensor] of list.entries()) {
    if (tensor.raw !== undefined) {
      writeSync(file, tensor.raw.make());
      continue;
    }
    const values = new Float32Array(numElements(tensor)).fill(1);
    if (tensor.standardDeviation !== null) fillRandom(values, tensor.standardDeviation, index + 1);
    writeSync(file, toBfloat16(values));
  }
  closeSync(file);
}

export function decoderConfig(size: DecoderSize = shape): object {
  return {
    model_type: "llama",
    hidden_act: "silu",
    hidden_size: size.hiddenSize,
    intermediate_size: size.intermediateSize,
    max_position_embeddings: size.maxPositionEmbeddings,
    num_attention_heads: size.numHeads,
    num_hidden_layers: size.numLayers,
    num_key_value_heads: size.numKvHeads,
    rms_norm_eps: size.rmsNormEps,
    rope_theta: size.ropeTheta,
    tie_word_embeddings: true,
    torch_dtype: "bfloat16",
    vocab_size: size.vocabSize,
    bos_token_id: 0,
    eos_token_id: 1,
  };
}

function tokenizer(addedTokens: Readonly<Record<string, number>>): unknown {
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: Object.entries({ "<s>": 0, "</s>": 1, ...addedTokens }).map(([content, id]) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(vocabulary().map((token, id) => [token, id])),
      merges: [],
    },
  };
}

export interface BenchCheckpoint {
  readonly config: object;
  readonly tensors: readonly CheckpointTensor[];
  readonly chatTemplate: string;
  /** Ids by text, of tokens in addition to those that start and end a text. */
  readonly addedTokens: Readonly<Record<string, number>>;
  readonly preprocessorConfig?: object;
}

/** Writes the folder unless it exists; returns it. */
export function writeCheckpoint(folder: string, checkpoint: BenchCheckpoint): string {
  if (existsSync(folder)) return folder;
  const { config, tensors, chatTemplate, addedTokens, preprocessorConfig } = checkpoint;
  const temporary = `${folder}.${process.pid}`;
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(temporary, { recursive: true });
  const writeJson = (name: string, value: unknown): void =>
    writeFileSync(join(temporary, name), JSON.stringify(value, null, 2));
  writeJson("config.json", config);
  writeJson("tokenizer.json", tokenizer(addedTokens));
  writeJson("tokenizer_config.json", {
    tokenizer_class: "PreTrainedTokenizerFast",
    bos_token: "<s>",
    eos_token: "</s>",
    chat_template: chatTemplate,
  });
  if (preprocessorConfig !== undefined) writeJson("preprocessor_config.json", preprocessorConfig);
  writeWeights(join(temporary, "model.safetensors"), tensors);
  renameSync(temporary, folder);
  return folder;
}

export function writeBenchCheckpoint(folder: string): string {
  return writeCheckpoint(folder, {
    config: { architectures: ["LlamaForCausalLM"], ...decoderConfig() },
    tensors: decoderTensors("model."),
    chatTemplate: "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
    addedTokens: {},
  });
}
