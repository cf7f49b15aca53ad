/** Configurations of every family, in sizes that all precisions on CUDA take. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import type { KvLayout } from "../../engine/models/built-model.ts";
import { goldensFolder } from "../support/checkpoints/goldens.ts";

const wide = { hidden_size: 256, intermediate_size: 512, num_attention_heads: 4, vocab_size: 512 } as const;
const grouped = { ...wide, head_dim: 64, num_key_value_heads: 2 } as const;

const ownFactors = Array.from({ length: 24 }, (_, index) => 1 + index);
const longRope = { type: "longrope", short_factor: ownFactors, long_factor: ownFactors } as const;

const gemma4 = { ...grouped, vocab_size_per_layer_input: 512 } as const;

const miniCpm = { hidden_size: 64, intermediate_size: 128, vocab_size: 512 } as const;

export interface CudaFamily {
  /** Of a folder of goldens, whose configuration it is but for the sizes: those are smaller than the kernels' tiles. */
  readonly name: string;
  readonly sizes: Readonly<Record<string, unknown>>;
  /** Default: that of the configuration. */
  readonly architecture?: string;
  /** Makes a text model of `text_config`. */
  readonly textArchitecture?: string;
  /** Default: all of `cudaDtypes`. */
  readonly dtypes?: readonly CudaDtype[];
  /** Default: both. */
  readonly layouts?: readonly KvLayout[];
}

export const cudaDtypes = ["bfloat16", "float16", "int8", "int4"] as const;

/** Of models with experts. */
const floats = ["bfloat16", "float16"] as const;

export type CudaDtype = (typeof cudaDtypes)[number];

const slots: KvLayout = { kind: "slots" };
const paged: KvLayout = { kind: "paged", blockSize: 256 };
export const cudaLayouts: readonly KvLayout[] = [paged, slots];

export const cudaFamilies: readonly CudaFamily[] = [
  { name: "llama", sizes: grouped },
  { name: "mistral", sizes: grouped },
  { name: "qwen2", sizes: grouped },
  { name: "qwen3", sizes: grouped },
  { name: "llava-default", sizes: grouped },
  { name: "llava-siglip", sizes: grouped },
  { name: "smolvlm", sizes: grouped },
  // Its vision tower gives rows of the decoder's own width.
  { name: "qwen2-vl", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/qwen2.5-vl/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/pixtral/v4", sizes: grouped },
  { name: "../hub/mistral3/v4", sizes: grouped },
  { name: "../hub/ministral3/v4", sizes: grouped },
  { name: "../hub/devstral-2/v4", sizes: grouped },
  { name: "../hub/phi-3/v4", sizes: { ...wide, num_key_value_heads: 2 } },
  { name: "../hub/phi-4-mini/v4", sizes: { ...wide, num_key_value_heads: 2, rope_scaling: longRope } },
  { name: "../hub/lighton-ocr/v4", sizes: grouped },
  { name: "../hub/llava-next/v4", sizes: grouped },
  { name: "../hub/llava-onevision/v4", sizes: grouped },
  { name: "../hub/internvl3/v4", sizes: grouped },
  { name: "../hub/internvl3.5-38b/v4", sizes: grouped },
  { name: "../hub/qianfan-ocr/v4", sizes: grouped },
  { name: "../hub/qwen3-vl/v4", sizes: { intermediate_size: 128, vocab_size: 512, num_hidden_layers: 3 } },
  { name: "../hub/glm-4.1v/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/glm-4.6v/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/glm-ocr/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/hunyuan-ocr/v4", sizes: { intermediate_size: 128, vocab_size: 512, org_vocab_size: 512 } },
  { name: "../hub/dots-ocr/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/hunyuan-dense/v4", sizes: { ...grouped, attention_head_dim: 64, org_vocab_size: 512 } },
  { name: "../hub/paddleocr-vl/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "fuyu", sizes: wide },
  { name: "../hub/persimmon/v4", sizes: wide },
  { name: "../hub/llama-3/v4", sizes: grouped },
  { name: "../hub/qwen2.5/v4", sizes: grouped },
  { name: "../hub/granite-docling/v4", sizes: grouped },
  // Its vision tower gives rows of the decoder's own width.
  { name: "../hub/granite-for-docling/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  // Its projector gives rows of the decoder's own width.
  { name: "../hub/got-ocr-2/v4", sizes: { intermediate_size: 128, vocab_size: 512 } },
  { name: "../hub/granite4-vision/v4", sizes: grouped },
  { name: "../hub/smolvlm2/v4", sizes: grouped },
  { name: "../hub/ministral3/v5", sizes: grouped, textArchitecture: "Ministral3ForCausalLM" },
  { name: "../hub/lighton-ocr/v5", sizes: grouped, architecture: "LightOnOCRForConditionalGeneration" },
  // Its activations exceed the range of float16.
  { name: "../hub/gemma3-text/v4", sizes: grouped, dtypes: ["bfloat16"] },
  // The tokens of an image see each other, which paged attention does not compute.
  { name: "../hub/gemma3/v4", sizes: grouped, dtypes: ["bfloat16"], layouts: [slots] },
  {
    name: "../hub/molmo2/v4",
    sizes: { intermediate_size: 128, vocab_size: 256, additional_vocab_size: 64 },
    layouts: [slots],
  },
  { name: "../hub/gemma4-text/v4", sizes: gemma4, dtypes: ["bfloat16"] },
  { name: "../hub/gemma4/v4", sizes: gemma4, dtypes: ["bfloat16"] },
  { name: "../hub/gemma4-31b/v4", sizes: gemma4, dtypes: ["bfloat16"], layouts: [slots] },
  { name: "../hub/gemma4-12b/v4", sizes: gemma4, dtypes: ["bfloat16"], layouts: [slots] },
  // Their recurrent states are in the paged layout only.
  { name: "qwen3.5", sizes: wide, layouts: [paged] },
  { name: "lfm2", sizes: { ...wide, num_key_value_heads: 2 }, layouts: [paged] },
  { name: "lfm3", sizes: grouped, layouts: [paged] },
  { name: "../hub/qwen3.5/v4", sizes: { intermediate_size: 128, vocab_size: 512 }, layouts: [paged] },
  { name: "../hub/lfm2/v4", sizes: { ...wide, num_key_value_heads: 2, block_ff_dim: 768 }, layouts: [paged] },
  { name: "../hub/lfm2-vl/v4", sizes: { ...wide, num_key_value_heads: 2, block_ff_dim: 768 }, layouts: [paged] },
  { name: "../hub/lfm3-vl/v4", sizes: grouped, layouts: [paged] },
  { name: "../hub/minicpm-v-4.6/v4", sizes: miniCpm, layouts: [paged] },
  { name: "../hub/minicpm-v-4.7/v4", sizes: miniCpm, layouts: [paged] },
  { name: "../hub/minicpm-ocr/v4", sizes: miniCpm, layouts: [paged] },
  { name: "../hub/qwen3-moe/v4", sizes: grouped, dtypes: floats },
  { name: "../hub/qwen3-vl-moe/v4", sizes: { vocab_size: 512 }, dtypes: floats },
  { name: "../hub/glm-4.5v/v4", sizes: { vocab_size: 512 }, dtypes: floats },
  { name: "../hub/glm-4.5/v4", sizes: { vocab_size: 512 }, dtypes: floats },
  { name: "../hub/qwen3.5-moe/v4", sizes: { vocab_size: 512 }, dtypes: floats, layouts: [paged] },
  {
    name: "../hub/qwen3.5-moe/v5",
    sizes: { vocab_size: 512 },
    textArchitecture: "Qwen3_5MoeForCausalLM",
    dtypes: floats,
    layouts: [paged],
  },
  { name: "../hub/deepseek-ocr/v4", sizes: {}, dtypes: floats },
  { name: "../hub/deepseek-ocr-2/v4", sizes: {}, dtypes: floats },
  { name: "../hub/deepseek-ocr-2/v5", sizes: {}, dtypes: floats },
];

/** The content of config.json. */
export async function familyConfig({ name, sizes, ...names }: CudaFamily): Promise<unknown> {
  const json = await readFile(join(goldensFolder, name, "config.json"), "utf8");
  const config = JSON.parse(json) as Record<string, unknown>;
  const text = config.text_config as Record<string, unknown> | undefined;
  if (text === undefined) return { ...config, ...sizes };
  if (names.textArchitecture !== undefined) return { ...text, ...sizes, architectures: [names.textArchitecture] };
  const architectures = names.architecture === undefined ? config.architectures : [names.architecture];
  return { ...config, architectures, text_config: { ...text, ...sizes } };
}
