/** Writes the bench's shape as a Hugging Face checkpoint (Llama, tied embeddings, bfloat16) with random weights. */
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fillRandom, layerWeights, shape, vocabulary } from "./shape.ts";

interface CheckpointTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Null for the ones of a norm. */
  readonly standardDeviation: number | null;
}

function tensors(): CheckpointTensor[] {
  const list: CheckpointTensor[] = [
    { name: "model.embed_tokens.weight", shape: [shape.vocabSize, shape.hiddenSize], standardDeviation: 0.05 },
    { name: "model.norm.weight", shape: [shape.hiddenSize], standardDeviation: null },
  ];
  for (let layer = 0; layer < shape.numLayers; layer++) {
    for (const norm of ["input_layernorm", "post_attention_layernorm"]) {
      list.push({ name: `model.layers.${layer}.${norm}.weight`, shape: [shape.hiddenSize], standardDeviation: null });
    }
    for (const [name, , rows, columns] of layerWeights) {
      const tensorName = `model.layers.${layer}.${name}.weight`;
      list.push({ name: tensorName, shape: [rows, columns], standardDeviation: 0.8 / Math.sqrt(columns) });
    }
  }
  return list;
}

const numElements = (tensor: CheckpointTensor): number => tensor.shape.reduce((product, size) => product * size, 1);

function toBfloat16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let index = 0; index < words.length; index++) halves[index] = words[index] >>> 16;
  return halves;
}

function writeWeights(path: string): void {
  const list = tensors();
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const tensor of list) {
    const end = offset + numElements(tensor) * 2;
    header[tensor.name] = { dtype: "BF16", shape: tensor.shape, data_offsets: [offset, end] };
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
    const values = new Float32Array(numElements(tensor)).fill(1);
    if (tensor.standardDeviation !== null) fillRandom(values, tensor.standardDeviation, index + 1);
    writeSync(file, toBfloat16(values));
  }
  closeSync(file);
}

function config(): unknown {
  return {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    hidden_act: "silu",
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    max_position_embeddings: shape.maxPositionEmbeddings,
    num_attention_heads: shape.numHeads,
    num_hidden_layers: shape.numLayers,
    num_key_value_heads: shape.numKvHeads,
    rms_norm_eps: shape.rmsNormEps,
    rope_theta: shape.ropeTheta,
    tie_word_embeddings: true,
    torch_dtype: "bfloat16",
    vocab_size: shape.vocabSize,
    bos_token_id: 0,
    eos_token_id: 1,
  };
}

function tokenizer(): unknown {
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: ["<s>", "</s>"].map((content, id) => ({
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

/** Writes the folder unless it is there already; returns it. */
export function writeBenchCheckpoint(folder: string): string {
  if (existsSync(folder)) return folder;
  const temporary = `${folder}.${process.pid}`;
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(temporary, { recursive: true });
  writeFileSync(join(temporary, "config.json"), JSON.stringify(config(), null, 2));
  writeFileSync(join(temporary, "tokenizer.json"), JSON.stringify(tokenizer()));
  writeFileSync(
    join(temporary, "tokenizer_config.json"),
    JSON.stringify({
      tokenizer_class: "PreTrainedTokenizerFast",
      bos_token: "<s>",
      eos_token: "</s>",
      chat_template: "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }),
  );
  writeWeights(join(temporary, "model.safetensors"));
  renameSync(temporary, folder);
  return folder;
}
