/** Configurations of DeepSeek-OCR 1 and 2: SAM, a second encoder over its features, a linear projector, and a decoder. */
import { z } from "zod";

import {
  headCount,
  layerCount,
  parseConfigObject,
  pictureSide,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { parseSamConfig, type SamConfig } from "../sam/config.ts";
import { samFeatureSide } from "../sam/vision-tower.ts";
import { patchesPerSide, parseVisionConfig, type VisionConfig } from "../vision-transformer/config.ts";
import type { OcrModelOptions } from "./image-options.ts";
import { parseOcrTextConfig } from "./text-config.ts";

/** DeepSeek-OCR 2: Qwen2, in which learned queries read the features. */
interface QueryEncoder {
  readonly kind: "queries";
  readonly layers: DecoderConfig;
}

/** DeepSeek-OCR 1: CLIP's layers over the features; the projector gets both. */
interface ClipEncoder {
  readonly kind: "clip";
  readonly layers: VisionConfig;
}

export interface OcrConfig {
  readonly text: DecoderConfig;
  readonly sam: SamConfig;
  readonly encoder: QueryEncoder | ClipEncoder;
  /** Features of the projector's inputs. */
  readonly projectedSize: number;
  readonly imageTokenId: number;
  readonly images: OcrModelOptions;
}

/** Of `<image>` in the tokenizers of DeepSeek-OCR, whose first form has no field for it. */
const IMAGE_TOKEN_ID = 128815;
const imageTokenId = z.int().nonnegative().default(IMAGE_TOKEN_ID);

const part = z.looseObject({});

/** transformers' default. */
const NATIVE_SHARED_EXPERTS = 2;

const nativeFields = z.looseObject({
  text_config: part,
  vision_config: z.looseObject({ sam_config: part.default({}), encoder_config: part }),
  image_token_id: imageTokenId,
});

/**
 * DeepSeek-OCR 2 as transformers has it (`DeepseekOcr2ForConditionalGeneration`).
 *
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseNativeConfig(json: unknown): OcrConfig {
  const fields = parseConfigObject(nativeFields, json, "");
  refuseOtherThan(json, "", { tie_word_embeddings: [false], quantization_config: [] });
  const { sam_config: sam, encoder_config: encoder } = fields.vision_config;
  return withQueries({
    text: parseOcrTextConfig(fields.text_config, "text_config", NATIVE_SHARED_EXPERTS),
    sam: parseSamConfig(sam, "vision_config.sam_config"),
    encoder,
    path: "vision_config.encoder_config",
    imageTokenId: fields.image_token_id,
  });
}

const samFields = z.looseObject({
  width,
  layers: layerCount,
  heads: headCount,
  global_attn_indexes: z.array(z.int().nonnegative()),
  downsample_channels: z.tuple([width, width]),
});

/** Fields with a default are those that files on the hub leave to their code. */
const clipFields = z.looseObject({
  width,
  layers: layerCount,
  heads: headCount,
  image_size: pictureSide,
  patch_size: pictureSide,
  mlp_ratio: z.number().positive().max(64).default(4),
});

const queryFields = z.looseObject({
  dim: width,
  layers: layerCount.default(24),
  heads: headCount.default(14),
  kv_heads: headCount.default(2),
  intermediate_size: width.default(4864),
});

const towerFields = { image_size: pictureSide.default(1024) };

const projectorFields = z.looseObject({ input_dim: width, n_embed: width });

const originalFields = {
  language_config: part.optional(),
  projector_config: projectorFields,
  image_token_id: imageTokenId,
};

const firstFields = z.looseObject({
  ...originalFields,
  vision_config: z.looseObject({
    ...towerFields,
    width: z.looseObject({ sam_vit_b: samFields, "clip-l-14-224": clipFields }),
  }),
});

const secondFields = z.looseObject({
  ...originalFields,
  vision_config: z.looseObject({
    ...towerFields,
    width: z.looseObject({ sam_vit_b: samFields, "qwen2-0-5b": queryFields }),
  }),
});

/** Fields of the first form, and the values that are computed. */
const originalValues = { tile_tag: ["2D"], global_view_pos: ["head"], quantization_config: [] } as const;

/**
 * DeepSeek-OCR 2 as DeepSeek published it (`DeepseekOCR2ForCausalLM`).
 *
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseSecondConfig(json: unknown): OcrConfig {
  const fields = parseConfigObject(secondFields, json, "");
  refuseOtherThan(json, "", originalValues);
  refuseOtherThan(fields.projector_config, "projector_config", { projector_type: ["linear"] });
  const { width: towers, image_size: imageSize } = fields.vision_config;
  const { dim, layers, heads, kv_heads, intermediate_size } = towers["qwen2-0-5b"];
  const path = "vision_config.width.qwen2-0-5b";
  // The file's second number of channels is that of DeepSeek-OCR 1.
  const [firstChannels] = towers.sam_vit_b.downsample_channels;
  const sam = originalSam(towers.sam_vit_b, imageSize, [firstChannels, dim]);
  const encoder = {
    hidden_size: dim,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kv_heads,
    intermediate_size,
    rope_theta: 1e6,
  };
  const config = withQueries({
    text: originalText(fields, json),
    sam,
    encoder,
    path,
    imageTokenId: fields.image_token_id,
  });
  return checkedProjector(config, fields.projector_config);
}

/**
 * DeepSeek-OCR 1 (`DeepseekOCRForCausalLM`).
 *
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseFirstConfig(json: unknown): OcrConfig {
  const fields = parseConfigObject(firstFields, json, "");
  refuseOtherThan(json, "", originalValues);
  refuseOtherThan(fields.projector_config, "projector_config", { projector_type: ["linear"] });
  const { width: towers, image_size: imageSize } = fields.vision_config;
  const clip = towers["clip-l-14-224"];
  const sam = originalSam(towers.sam_vit_b, imageSize, towers.sam_vit_b.downsample_channels);
  const path = "vision_config.width.clip-l-14-224";
  const layers = parseVisionConfig(
    {
      hidden_size: clip.width,
      num_hidden_layers: clip.layers,
      num_attention_heads: clip.heads,
      intermediate_size: Math.trunc(clip.width * clip.mlp_ratio),
      image_size: clip.image_size,
      patch_size: clip.patch_size,
    },
    path,
    clipDefaults,
  );
  if (layers.hiddenSize !== sam.downsampleChannels[1]) {
    throw unsupportedField(
      path,
      "width",
      layers.hiddenSize,
      `SAM's features have ${sam.downsampleChannels[1]} channels`,
    );
  }
  const config: OcrConfig = {
    text: originalText(fields, json),
    sam,
    encoder: { kind: "clip", layers },
    projectedSize: 2 * layers.hiddenSize,
    imageTokenId: fields.image_token_id,
    images: imagesOf(sam, TILE_SHARE_WITH_CLIP, true),
  };
  return checkedProjector(config, fields.projector_config);
}

const clipDefaults = {
  hidden_size: 1024,
  num_attention_heads: 16,
  image_size: 224,
  patch_size: 14,
  hidden_act: "quick_gelu",
  layer_norm_eps: 1e-5,
} as const;

/** Tiles of 640 pixels beside a whole picture of 1024, and of 768. */
const TILE_SHARE_WITH_CLIP = 5 / 8;
const TILE_SHARE_WITH_QUERIES = 3 / 4;

function withQueries({
  encoder,
  path,
  ...parts
}: Pick<OcrConfig, "text" | "sam" | "imageTokenId"> & { readonly encoder: object; readonly path: string }): OcrConfig {
  const layers = parseDecoderConfig(encoder, path, "qwen2");
  const [, channels] = parts.sam.downsampleChannels;
  if (layers.slidingWindows.some((window) => window !== null)) {
    throw unsupportedField(path, "use_sliding_window", true);
  }
  if (layers.hiddenSize !== channels) {
    throw unsupportedField(path, "hidden_size", layers.hiddenSize, `SAM's features have ${channels} channels`);
  }
  return {
    ...parts,
    encoder: { kind: "queries", layers },
    projectedSize: layers.hiddenSize,
    images: imagesOf(parts.sam, TILE_SHARE_WITH_QUERIES, false),
  };
}

function originalSam(
  { width: hiddenSize, layers, heads, global_attn_indexes, ...more }: z.output<typeof samFields>,
  imageSize: number,
  downsampleChannels: readonly [number, number],
): SamConfig {
  const json = {
    ...more,
    hidden_size: hiddenSize,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    global_attn_indexes,
    image_size: imageSize,
    downsample_channels: downsampleChannels,
  };
  return parseSamConfig(json, "vision_config.width.sam_vit_b");
}

/** Some files have the decoder's fields at the top level only. */
function originalText({ language_config: decoder }: { readonly language_config?: object | undefined }, json: unknown) {
  return decoder === undefined
    ? parseOcrTextConfig(json as object, "", 0)
    : parseOcrTextConfig(decoder, "language_config", 0);
}

function checkedProjector(config: OcrConfig, { input_dim, n_embed }: z.output<typeof projectorFields>): OcrConfig {
  const { projectedSize, text } = config;
  const path = "projector_config";
  if (input_dim !== projectedSize) {
    throw unsupportedField(path, "input_dim", input_dim, `the encoders have ${projectedSize} features`);
  }
  if (n_embed !== text.hiddenSize) {
    throw unsupportedField(path, "n_embed", n_embed, `the decoder has ${text.hiddenSize} features`);
  }
  return config;
}

function imagesOf(sam: SamConfig, tileShare: number, endsLines: boolean): OcrModelOptions {
  const { imageSize: whole, patchSize } = sam;
  const tile = whole * tileShare;
  if (!Number.isInteger(tile / patchSize)) {
    const reason = `tiles have ${tile} pixels on each side, which is no multiple of the ${patchSize} of a patch`;
    throw unsupportedField("", "vision_config", whole, reason);
  }
  return {
    tile,
    whole,
    tileFeatures: samFeatureSide(tile / patchSize),
    wholeFeatures: samFeatureSide(patchesPerSide(sam)),
    endsLines,
  };
}
