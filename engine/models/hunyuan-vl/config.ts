/**
 * Configuration of dense HunYuan models, and of HunyuanOCR: a tower over pictures of any size, and such a decoder whose
 * tokens have positions on several axes. Of the tower's fields, `out_hidden_size`, `img_max_token_num`,
 * `max_vit_seq_len` and `min_image_size` are not read, as in transformers: the first is the decoder's width, and the
 * others bound what the image processor makes.
 */
import { z } from "zod";

import { excerpt } from "../../excerpt.ts";
import {
  headCount,
  headSize,
  normEpsilon,
  parseConfigObject,
  patchSide,
  pictureSide,
  positiveNumber,
  refuseOtherThan,
  unsupportedField,
  vocabularySize,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface HunYuanVisionConfig {
  readonly transformer: VisionConfig;
  readonly numChannels: number;
  readonly patchSize: number;
  readonly temporalPatchSize: 1;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
  /** Side of the square of learned positions, which is resized to the picture's patches. */
  readonly positionsPerSide: number;
  /** Of the RMS norms before and after the merger. */
  readonly epsilon: number;
}

export interface HunYuanVlConfig {
  readonly text: DecoderConfig;
  /** For each axis of a position, half of the dimensions of a head that it belongs to. */
  readonly sections: readonly number[];
  readonly vision: HunYuanVisionConfig;
  readonly imageTokenId: number;
}

const rootFields = z.looseObject({
  text_config: z.looseObject({}).nullish(),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(120_120),
  tie_word_embeddings: z.boolean().nullish(),
});

const sectionsField = z.array(z.int().nonnegative()).min(3).max(16).nullish();
const ropeFields = z.looseObject({
  type: z.string().nullish(),
  rope_type: z.string().nullish(),
  rope_theta: positiveNumber.nullish(),
  alpha: positiveNumber.nullish(),
  mrope_section: sectionsField,
  xdrope_section: sectionsField,
});
const textFields = z.looseObject({
  head_dim: headSize.nullish(),
  attention_head_dim: headSize.nullish(),
  vocab_size: vocabularySize.optional(),
  org_vocab_size: vocabularySize.nullish(),
  tie_word_embeddings: z.boolean().nullish(),
  rope_theta: positiveNumber.nullish(),
  rope_scaling: ropeFields.nullish(),
  rope_parameters: ropeFields.nullish(),
});

const textDefaults = {
  vocab_size: 290_943,
  hidden_size: 4096,
  intermediate_size: 11_008,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
} as const;

/** What the decoder of transformers always does, and the fields of Tencent's files that name it. */
const neutralTextFields = {
  use_qk_norm: [true],
  num_experts: [1],
  use_cla: [false],
  use_mla: [false],
  norm_type: ["rms", "hf_rms"],
  mlp_bias: [false],
} as const;
/** Fields with other values in related models, which are checked above. */
const checkedFields = { use_qk_norm: null, num_experts: null, mlp_bias: false };

const DEFAULT_THETA = 10_000;

const visionFields = z.looseObject({
  spatial_merge_size: patchSide.default(2),
  max_image_size: pictureSide.default(2048),
  rms_norm_eps: normEpsilon.nullish(),
  layer_norm_eps: normEpsilon.nullish(),
  num_attention_heads: headCount.nullish(),
  attention_heads: headCount.nullish(),
});
const defaultTower = {
  hidden_size: 1152,
  num_attention_heads: 16,
  image_size: 2048,
  patch_size: 16,
  hidden_act: "gelu",
  layer_norm_eps: 1e-5,
} as const;

/**
 * A text model.
 *
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseHunYuanDenseConfig(json: unknown): DecoderConfig {
  const fields = parseConfigObject(z.looseObject({}), json, "");
  refuseOtherThan(fields, "", { model_type: ["hunyuan_v1_dense"], position_embedding_xdrope: [false] });
  return parseText(fields, "", { kinds: ["default", "dynamic"], isTied: false }).text;
}

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseHunYuanVlConfig(json: unknown): HunYuanVlConfig {
  const root = parseConfigObject(rootFields, json, "");
  refuseOtherThan(root, "", { model_type: ["hunyuan_vl"], quantization_config: [] });
  // The first checkpoint on the hub has the decoder's fields at the top level.
  const path = root.text_config == null ? "" : "text_config";
  const given = root.text_config ?? root;
  if (path !== "") refuseOtherThan(given, path, { model_type: ["hunyuan_vl_text"] });
  const { text, rope, ropePath } = parseText(given, path, { kinds: ["default", "dynamic", "xdrope"], isTied: true });
  // As in transformers: a field at the top level unties nothing alone.
  const isUntied = path !== "" && !text.tieWordEmbeddings && root.tie_word_embeddings === false;
  return {
    text: { ...text, tieWordEmbeddings: !isUntied },
    sections: parseSections(rope, ropePath, text.headDim),
    vision: parseTower(root.vision_config),
    imageTokenId: root.image_token_id,
  };
}

/** `isTied` is the default of `tie_word_embeddings`, and `kinds` are the supported rotary embeddings. */
function parseText(
  json: object,
  path: string,
  { kinds, isTied }: { readonly kinds: readonly string[]; readonly isTied: boolean },
): { readonly text: DecoderConfig; readonly rope: z.output<typeof ropeFields>; readonly ropePath: string } {
  const fields = parseConfigObject(textFields, json, path);
  refuseOtherThan(json, path, neutralTextFields);
  refuseOtherNames(fields, path, "attention_head_dim", "head_dim");
  refuseOtherNames(fields, path, "org_vocab_size", "vocab_size");
  const headDim = fields.head_dim ?? fields.attention_head_dim;
  const vocabSize = fields.vocab_size ?? fields.org_vocab_size;
  const theta = fields.rope_parameters?.rope_theta ?? fields.rope_theta ?? DEFAULT_THETA;
  const text = parseDecoderConfig(
    {
      ...textDefaults,
      ...fields,
      ...checkedFields,
      ...(headDim != null && { head_dim: headDim }),
      ...(vocabSize != null && { vocab_size: vocabSize }),
      tie_word_embeddings: fields.tie_word_embeddings ?? isTied,
      rope_scaling: null,
      rope_parameters: { rope_type: "default", rope_theta: theta },
    },
    path,
    "llama",
  );
  const name = fields.rope_scaling == null ? "rope_parameters" : "rope_scaling";
  const rope = fields[name] ?? {};
  const ropePath = path === "" ? name : `${path}.${name}`;
  const kind = rope.rope_type ?? rope.type ?? "default";
  if (!kinds.includes(kind)) throw unsupportedField(ropePath, "rope_type", kind);
  // Transformers calls it dynamic, but with alpha the base does not depend on the length.
  const base = rope.rope_theta ?? theta;
  const stretch = kind === "default" ? 1 : (rope.alpha ?? 1) ** (text.headDim / (text.headDim - 2));
  const ownRope = { theta: base * stretch, scaling: { kind: "none" } } as const;
  return { text: { ...text, normalisesQueryAndKey: true, rope: ownRope }, rope, ropePath };
}

/** @throws EngineError `unsupported_model` if two names of one field have different values. */
function refuseOtherNames(fields: Readonly<Record<string, unknown>>, path: string, older: string, name: string): void {
  const [value, other] = [fields[older] ?? null, fields[name] ?? null];
  if (value === null || other === null || value === other) return;
  throw unsupportedField(path, older, value, `it is another name of ${name}, which is ${excerpt(other)}`);
}

function parseSections(rope: z.output<typeof ropeFields>, path: string, headDim: number): readonly number[] {
  const { mrope_section: sections, xdrope_section: older } = rope;
  const chosen = sections ?? older;
  if (chosen == null) throw unsupportedField(path, "mrope_section", null, "the decoder has positions on several axes");
  const field = sections == null ? "xdrope_section" : "mrope_section";
  if (sections != null && older != null && sections.join() !== older.join()) {
    throw unsupportedField(path, "xdrope_section", older, `it is another name of mrope_section, which differs`);
  }
  if (2 * chosen.reduce((sum, section) => sum + section, 0) !== headDim) {
    throw unsupportedField(path, field, chosen, `their sum must be half of the head size, ${headDim}`);
  }
  return chosen;
}

function parseTower(json: object): HunYuanVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["hunyuan_vl", "hunyuan_vl_vision"],
    temporal_patch_size: [1],
    interpolate_mode: ["bilinear"],
    add_patchemb_bias: [true],
    cat_extra_token: [1, true],
  });
  refuseOtherNames(fields, path, "layer_norm_eps", "rms_norm_eps");
  refuseOtherNames(fields, path, "attention_heads", "num_attention_heads");
  const epsilon = fields.rms_norm_eps ?? fields.layer_norm_eps ?? defaultTower.layer_norm_eps;
  const own = {
    image_size: fields.max_image_size,
    layer_norm_eps: epsilon,
    num_attention_heads: fields.num_attention_heads ?? fields.attention_heads ?? defaultTower.num_attention_heads,
  };
  const given = { intermediate_size: 4304, num_hidden_layers: 27, ...fields, ...own };
  const transformer = parseVisionConfig(given, path, defaultTower);
  return {
    transformer,
    numChannels: transformer.numChannels,
    patchSize: transformer.patchSize,
    temporalPatchSize: 1,
    mergeSize: fields.spatial_merge_size,
    positionsPerSide: patchesPerSide(transformer),
    epsilon,
  };
}
