/** Configuration of Gemma 4 with pictures: the decoder, and a tower over patches of pictures in their own shapes. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  headSize,
  layerCount,
  normEpsilon,
  parseConfigObject,
  patchSide,
  positionCount,
  positiveNumber,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseGemma4TextConfig, type Gemma4TextConfig } from "./text-config.ts";

export interface Gemma4VisionConfig {
  /** Width of the tower. */
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly activation: ActivationName;
  readonly rmsNormEpsilon: number;
  readonly ropeTheta: number;
  readonly patchSize: number;
  /** Side of the squares of patches whose mean is one embedding. */
  readonly poolingSize: number;
  /** Rows, and columns, that have an embedding of their position. */
  readonly numPositions: number;
  /** Whether inputs and outputs of linear layers are clipped to ranges in the checkpoint. */
  readonly clipsLinears: boolean;
  /** Whether pooled patches are shifted and scaled by vectors in the checkpoint. */
  readonly standardizes: boolean;
}

/** @template Vision What makes embeddings of pictures: by default a tower. */
export interface Gemma4Config<Vision = Gemma4VisionConfig> {
  readonly text: Gemma4TextConfig;
  readonly vision: Vision;
  readonly imageTokenId: number;
  /** Tokens that stand for pictures, videos and sounds. */
  readonly mediaTokenIds: readonly number[];
}

const DEFAULT_THETA = 100;

/** transformers' defaults. */
const visionFields = z.looseObject({
  hidden_size: width.default(768),
  intermediate_size: width.default(3072),
  num_hidden_layers: layerCount.default(16),
  num_attention_heads: headCount.default(12),
  num_key_value_heads: headCount.default(12),
  head_dim: headSize.default(64),
  hidden_activation: z.string().default("gelu_pytorch_tanh"),
  rms_norm_eps: normEpsilon.default(1e-6),
  rope_parameters: z
    .looseObject({ rope_theta: positiveNumber.default(DEFAULT_THETA), rope_type: z.string().default("axial") })
    .nullish(),
  pooling_kernel_size: patchSide.default(3),
  patch_size: patchSide.default(16),
  position_embedding_size: positionCount.default(10 * 1024),
  use_clipped_linears: z.boolean().default(false),
  standardize: z.boolean().default(false),
});

const tokenId = z.int().nonnegative();
const gemma4Fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}, "an object: the architecture without pictures is not served").default({}),
  image_token_id: tokenId.default(258_880),
  audio_token_id: tokenId.nullable().default(258_881),
  video_token_id: tokenId.nullable().default(258_884),
  tie_word_embeddings: z.boolean().optional(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGemma4Config(json: unknown): Gemma4Config {
  return parsePicturesConfig(json, { parseText: parseGemma4TextConfig, parseVision: parseVisionConfig });
}

/** @throws EngineError like the parsers of the parts, each of which gets its object in config.json and its path. */
export function parsePicturesConfig<Vision>(
  json: unknown,
  parsers: {
    readonly parseText: (json: object, path: string) => Gemma4TextConfig;
    readonly parseVision: (json: object, path: string) => Vision;
  },
): Gemma4Config<Vision> {
  const fields = parseConfigObject(gemma4Fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  const text = parsers.parseText(fields.text_config, "text_config");
  const { image_token_id: imageTokenId, audio_token_id, video_token_id } = fields;
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings ?? text.tieWordEmbeddings },
    vision: parsers.parseVision(fields.vision_config, "vision_config"),
    imageTokenId,
    mediaTokenIds: [imageTokenId, video_token_id, audio_token_id].filter((id) => id !== null),
  };
}

function parseVisionConfig(json: unknown, path: string): Gemma4VisionConfig {
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: ["gemma4_vision"], attention_bias: [false], quantization_config: [] });
  refuseOtherThan(fields.rope_parameters ?? {}, `${path}.rope_parameters`, {
    // transformers computes both alike.
    rope_type: ["axial", "default"],
    partial_rotary_factor: [1],
  });
  const { num_attention_heads: numHeads, num_key_value_heads: numKvHeads, head_dim: headDim } = fields;
  if (numKvHeads !== numHeads) {
    throw unsupportedField(path, "num_key_value_heads", numKvHeads, `there are ${numHeads} query heads`);
  }
  if (headDim % 4 !== 0) throw unsupportedField(path, "head_dim", headDim, "it must be a multiple of 4");
  return {
    hiddenSize: fields.hidden_size,
    numLayers: fields.num_hidden_layers,
    numHeads,
    headDim,
    intermediateSize: fields.intermediate_size,
    activation: parseActivation(path, "hidden_activation", fields.hidden_activation),
    rmsNormEpsilon: fields.rms_norm_eps,
    ropeTheta: fields.rope_parameters?.rope_theta ?? DEFAULT_THETA,
    patchSize: fields.patch_size,
    poolingSize: fields.pooling_kernel_size,
    numPositions: fields.position_embedding_size,
    clipsLinears: fields.use_clipped_linears,
    standardizes: fields.standardize,
  };
}
