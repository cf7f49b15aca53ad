/** Every size from which a graph is built has a bound, in every family: none is trusted because a file says so. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { shown } from "../../../engine/excerpt.ts";
import { ropeTables } from "../../../engine/models/llama/rope.ts";
import { findModelDefinition } from "../../support/engine/shipped-models.ts";

const text = [
  "num_hidden_layers",
  "num_attention_heads",
  "hidden_size",
  "intermediate_size",
  "vocab_size",
  "max_position_embeddings",
];
const llamaText = [...text, "num_key_value_heads", "head_dim"];
const qwen35Text = [
  ...llamaText,
  ...["conv_kernel_dim", "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"].map(
    (field) => `linear_${field}`,
  ),
];
const experts = ["num_experts", "num_experts_per_tok", "moe_intermediate_size"];
const glm4MoeText = [...llamaText, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"];
const lfm2Text = [...llamaText, "block_ff_dim", "block_multiple_of", "conv_L_cache"];
const tower = [
  "num_hidden_layers",
  "num_attention_heads",
  "hidden_size",
  "intermediate_size",
  "image_size",
  "patch_size",
].map((field) => `vision_config.${field}`);
const pixtralTower = [
  "num_hidden_layers",
  "num_attention_heads",
  "hidden_size",
  "intermediate_size",
  "head_dim",
  "patch_size",
].map((field) => `vision_config.${field}`);
const glmTower = [
  "depth",
  "hidden_size",
  "intermediate_size",
  "num_heads",
  "out_hidden_size",
  "image_size",
  "patch_size",
  "spatial_merge_size",
  "temporal_patch_size",
].map((field) => `vision_config.${field}`);
const inObject = (path: string, fields: readonly string[]): string[] => fields.map((field) => `${path}.${field}`);
const inText = (fields: readonly string[]): string[] => fields.map((field) => `text_config.${field}`);

const deepseekText = [...llamaText.slice(0, -1), "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"];
const samFields = [
  "num_hidden_layers",
  "num_attention_heads",
  "hidden_size",
  "mlp_dim",
  "image_size",
  "patch_size",
  "output_channels",
  "window_size",
];
const towersPath = "vision_config.width";
const publishedSam = [
  "vision_config.image_size",
  ...inObject(`${towersPath}.sam_vit_b`, ["width", "layers", "heads"]),
  ...inObject("projector_config", ["input_dim", "n_embed"]),
];
const publishedClip = inObject(`${towersPath}.clip-l-14-224`, ["width", "layers", "heads", "image_size", "patch_size"]);
const publishedQueries = inObject(`${towersPath}.qwen2-0-5b`, [
  "dim",
  "layers",
  "heads",
  "kv_heads",
  "intermediate_size",
]);
const sam = { width: 768, layers: 12, heads: 12, global_attn_indexes: [2], downsample_channels: [512, 1024] };
const published = { language_config: { num_experts_per_tok: 6 }, projector_config: { input_dim: 2048, n_embed: 4096 } };
const clip = { width: 1024, layers: 24, heads: 16, image_size: 224, patch_size: 14 };
const deepseekOcr = { ...published, vision_config: { width: { sam_vit_b: sam, "clip-l-14-224": clip } } };
const deepseekOcr2 = {
  ...published,
  projector_config: { input_dim: 896, n_embed: 4096 },
  vision_config: { width: { sam_vit_b: sam, "qwen2-0-5b": { dim: 896 } } },
};

const families: Readonly<Record<string, { readonly fields: readonly string[]; readonly config?: object }>> = {
  LlamaForCausalLM: { fields: llamaText },
  MistralForCausalLM: { fields: [...llamaText, "sliding_window"] },
  Ministral3ForCausalLM: {
    fields: [...llamaText, "sliding_window", "rope_parameters.original_max_position_embeddings"],
    config: { rope_parameters: { rope_type: "yarn", factor: 2, llama_4_scaling_beta: 0.1 } },
  },
  Phi3ForCausalLM: { fields: [...llamaText, "sliding_window"] },
  Qwen2ForCausalLM: { fields: [...llamaText, "sliding_window"] },
  Qwen3ForCausalLM: { fields: [...llamaText, "sliding_window"] },
  HunYuanDenseV1ForCausalLM: {
    fields: [...llamaText, "attention_head_dim", "org_vocab_size"],
    config: { head_dim: 128 },
  },
  Lfm2ForCausalLM: { fields: lfm2Text },
  Lfm3ForCausalLM: { fields: [...llamaText, "sliding_window", "conv_L_cache"] },
  Lfm3VlForConditionalGeneration: {
    fields: [
      ...inText([...llamaText, "sliding_window", "conv_L_cache"]),
      ...tower.filter((field) => !field.endsWith("image_size")),
      ...["num_key_value_heads", "spatial_merge_size", "temporal_patch_size", "conv_kernel_size"].map(
        (field) => `vision_config.${field}`,
      ),
      "projector_hidden_size",
    ],
  },
  Lfm2VlForConditionalGeneration: {
    fields: [
      ...inText(lfm2Text),
      ...tower.filter((field) => !field.endsWith("image_size")),
      "vision_config.num_patches",
      "downsample_factor",
      "projector_hidden_size",
    ],
  },
  Qwen3MoeForCausalLM: { fields: [...llamaText, ...experts], config: { num_experts: 4, num_experts_per_tok: 2 } },
  Qwen3_5ForCausalLM: { fields: qwen35Text },
  Qwen3_5MoeForCausalLM: {
    fields: [...qwen35Text, ...experts, "shared_expert_intermediate_size"],
    config: { num_experts: 8 },
  },
  Qwen3_5ForConditionalGeneration: {
    fields: [
      ...inText(qwen35Text),
      ...["depth", "hidden_size", "intermediate_size", "num_heads", "out_hidden_size"].map(
        (field) => `vision_config.${field}`,
      ),
    ],
    config: { text_config: {} },
  },
  MiniCPMV4_6ForConditionalGeneration: {
    fields: [...inText(qwen35Text), ...tower],
    config: { image_token_id: 1 },
  },
  MiniCPMV4_7ForConditionalGeneration: {
    fields: [...inText(qwen35Text), ...tower],
    config: {
      image_token_id: 1,
      image_start_id: 2,
      image_end_id: 3,
      slice_start_id: 4,
      slice_end_id: 5,
      newline_id: 6,
    },
  },
  MiniCPMOcrForConditionalGeneration: {
    fields: [...inText(qwen35Text), ...tower],
    config: { image_token_id: 1 },
  },
  LlavaForConditionalGeneration: { fields: [...inText(llamaText), ...tower] },
  LlavaNextForConditionalGeneration: { fields: [...inText(llamaText), ...tower] },
  LlavaOnevisionForConditionalGeneration: { fields: [...inText(llamaText), ...tower] },
  Gemma4UnifiedForConditionalGeneration: {
    fields: [
      ...inText([...llamaText, "global_head_dim", "num_global_key_value_heads", "sliding_window"]),
      ...[
        "patch_size",
        "pooling_kernel_size",
        "model_patch_size",
        "mm_embed_dim",
        "mm_posemb_size",
        "output_proj_dims",
      ].map((field) => `vision_config.${field}`),
    ],
  },
  Glm4vForConditionalGeneration: {
    fields: [...inText(llamaText), ...glmTower],
    config: { text_config: { partial_rotary_factor: 0.5 } },
  },
  Glm4vMoeForConditionalGeneration: {
    fields: [...inText([...glm4MoeText, "n_group", "topk_group"]), ...glmTower],
    config: { text_config: { head_dim: 128 } },
  },
  Glm4MoeForCausalLM: { fields: [...glm4MoeText, "n_group", "topk_group"], config: { head_dim: 128 } },
  GlmOcrForConditionalGeneration: { fields: [...inText(llamaText), ...glmTower] },
  PaddleOCRVLForConditionalGeneration: {
    fields: [...llamaText, ...tower, "vision_config.spatial_merge_size"],
  },
  DotsOCRForCausalLM: {
    fields: [
      ...llamaText,
      ...["embed_dim", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"].map(
        (field) => `vision_config.${field}`,
      ),
      ...["patch_size", "spatial_merge_size"].map((field) => `vision_config.${field}`),
    ],
  },
  HunYuanVLForConditionalGeneration: {
    fields: [
      ...llamaText,
      "attention_head_dim",
      "org_vocab_size",
      ...["num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "patch_size"].map(
        (field) => `vision_config.${field}`,
      ),
      ...["max_image_size", "spatial_merge_size"].map((field) => `vision_config.${field}`),
    ],
    config: { head_dim: 128, rope_scaling: { type: "xdrope", xdrope_section: [16, 16, 16, 16] } },
  },
  InternVLForConditionalGeneration: { fields: [...inText(llamaText), ...tower] },
  QianfanOCRForConditionalGeneration: { fields: [...inText(llamaText), ...tower] },
  Mistral3ForConditionalGeneration: {
    fields: [...inText([...llamaText, "sliding_window"]), ...pixtralTower, "spatial_merge_size"],
    config: { text_config: {}, vision_config: { model_type: "pixtral" } },
  },
  LightOnOcrForConditionalGeneration: {
    fields: [...inText([...llamaText, "sliding_window"]), ...pixtralTower, "spatial_merge_size"],
    config: { text_config: {}, vision_config: { model_type: "pixtral" } },
  },
  DeepseekOCRForCausalLM: {
    fields: [...inObject("language_config", deepseekText), ...publishedSam, ...publishedClip],
    config: deepseekOcr,
  },
  DeepseekOCR2ForCausalLM: {
    fields: [...inObject("language_config", deepseekText), ...publishedSam, ...publishedQueries],
    config: deepseekOcr2,
  },
  DeepseekOcr2ForConditionalGeneration: {
    fields: [
      ...inText(deepseekText),
      ...inObject("vision_config.sam_config", samFields),
      ...inObject("vision_config.encoder_config", [...text.slice(0, 4), "num_key_value_heads"]),
    ],
    config: { text_config: { num_experts_per_tok: 6 }, vision_config: { encoder_config: {} } },
  },
  Idefics3ForConditionalGeneration: { fields: [...inText(llamaText), ...tower, "scale_factor"] },
  GraniteDoclingForConditionalGeneration: {
    fields: [
      ...inText(llamaText),
      ...tower,
      ...["out_hidden_size", "scale_factor"].map((field) => `vision_config.${field}`),
    ],
  },
  Molmo2ForConditionalGeneration: {
    fields: [
      ...inText([...llamaText, "additional_vocab_size"]),
      ...inObject("vit_config", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]),
      ...inObject("adapter_config", ["hidden_size", "intermediate_size", "num_attention_heads", "text_hidden_size"]),
    ],
    config: {
      vit_config: {},
      adapter_config: { text_hidden_size: 4096 },
    },
  },
  Granite4VisionForConditionalGeneration: {
    fields: [...inText(llamaText), ...tower],
    config: {
      deepstack_layer_map: [[-1, 0]],
      downsample_rate: "4/8",
      vision_feature_select_strategy: "full",
    },
  },
  GotOcr2ForConditionalGeneration: {
    fields: [...inText(llamaText), ...inObject("vision_config", samFields)],
  },
  SmolVLMForConditionalGeneration: { fields: [...inText(llamaText), ...tower, "scale_factor"] },
  FuyuForCausalLM: {
    fields: [...inText(text), "patch_size"],
    config: { text_config: { model_type: "persimmon" } },
  },
  PersimmonForCausalLM: { fields: text },
  Qwen2_5_VLForConditionalGeneration: {
    fields: [
      ...llamaText,
      ...["depth", "hidden_size", "intermediate_size", "num_heads", "out_hidden_size", "window_size"].map(
        (field) => `vision_config.${field}`,
      ),
      ...["patch_size", "spatial_merge_size", "temporal_patch_size"].map((field) => `vision_config.${field}`),
    ],
  },
  Qwen3VLForConditionalGeneration: {
    fields: [
      ...llamaText,
      ...["depth", "hidden_size", "intermediate_size", "num_heads", "out_hidden_size"].map(
        (field) => `vision_config.${field}`,
      ),
      ...["patch_size", "spatial_merge_size", "temporal_patch_size", "num_position_embeddings"].map(
        (field) => `vision_config.${field}`,
      ),
    ],
  },
  Qwen3VLMoeForConditionalGeneration: {
    fields: inText([...llamaText, ...experts]),
    config: { text_config: { num_experts: 4 } },
  },
  Qwen2VLForConditionalGeneration: {
    fields: [
      ...llamaText,
      ...["depth", "embed_dim", "hidden_size", "num_heads"].map((field) => `vision_config.${field}`),
      ...["patch_size", "spatial_merge_size", "temporal_patch_size"].map((field) => `vision_config.${field}`),
    ],
  },
};

const badValues: readonly unknown[] = [1e9, 2 ** 53, 1e308, 0, -1, 1.5, "64", true, {}];

const cases = Object.entries(families).flatMap(([architecture, { fields, config = {} }]) =>
  fields.map((field) => ({ architecture, field, config })),
);

function withField(config: object, path: string, value: unknown): object {
  const [first, ...rest] = path.split(".");
  if (rest.length === 0) return { ...config, [first!]: value };
  const inner = (config as Record<string, object | undefined>)[first!] ?? {};
  return { ...config, [first!]: withField(inner, rest.join("."), value) };
}

function errorOf(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  return null;
}

test.for(cases)("$architecture rejects every invalid $field by path and value", ({ architecture, field, config }) => {
  for (const value of badValues) {
    const json = withField({ architectures: [architecture], ...config }, field, value);
    const error = errorOf(() => findModelDefinition(json).configure(json));
    expect(error).toBeInstanceOf(EngineError);
    const { code, message } = error as EngineError;
    expect(code).toBe("invalid_checkpoint");
    expect(message).toContain(`config.json: ${field} is ${shown(value)}; expected `);
    expect(message).not.toContain("\n");
  }
});

test("a length whose rotary tables do not fit is rejected with both numbers before they are made", () => {
  const config = { theta: 10_000, scaling: { kind: "none" } } as const;
  expect(() => ropeTables(config, 128, 134_217_728)).toThrow(
    new EngineError(
      "invalid_configuration",
      "The rotary tables for a model length of 134217728 tokens would take 68719476736 bytes; the limit is 1073741824, which is 2097152 tokens.",
      { setting: "maxModelLen" },
    ),
  );
});
