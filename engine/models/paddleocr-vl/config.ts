/**
 * Configuration of PaddleOCR-VL: a SigLIP tower over pictures of any size, and an ERNIE 4.5 decoder with three-axis
 * positions. `temporal_patch_size` and `tokens_per_second` of the tower are not read, as in transformers: patches span
 * one picture, and the fields are about videos.
 */
import { z } from "zod";

import { parseConfigObject, patchSide, positiveNumber, refuseOtherThan, unsupportedField } from "../config-field.ts";
import type { PatchTowerConfig } from "../patches/patch-tower-config.ts";
import { parseQwenVlText, type QwenVlTextConfig, type QwenVlTextDefaults } from "../qwen2-vl/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface PaddleOcrVisionConfig extends PatchTowerConfig {
  /** The tower without what its patches have beyond SigLIP's. */
  readonly transformer: VisionConfig;
  /** Side of the square of learned positions, which is resized to the picture's patches. */
  readonly positionsPerSide: number;
}

export interface PaddleOcrVlConfig extends QwenVlTextConfig {
  readonly vision: PaddleOcrVisionConfig;
  readonly imageOptions: { readonly resizes_like: "paddleocr" };
}

const textDefaults: QwenVlTextDefaults = {
  family: "llama",
  fields: {
    vocab_size: 103_424,
    hidden_size: 1024,
    intermediate_size: 3072,
    num_hidden_layers: 18,
    num_attention_heads: 16,
    num_key_value_heads: 2,
    head_dim: 128,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-5,
    rope_theta: 500_000,
  },
  sections: [16, 24, 24],
};
const rootDefaults = { image_token_id: 100_295 };

const isTied = z.boolean().nullish();
const rootFields = z.looseObject({ text_config: z.looseObject({}).nullish(), tie_word_embeddings: isTied });
const textFields = z.looseObject({ use_bias: z.boolean().nullish(), tie_word_embeddings: isTied });

/** Fields of the hub's files, which name what the decoder of transformers always does. */
const neutralFields = {
  use_3d_rope: [true],
  rope_is_neox_style: [true],
  compression_ratio: [1],
} as const;

const defaultTower = {
  hidden_size: 1152,
  num_attention_heads: 16,
  image_size: 384,
  patch_size: 14,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;
const visionFields = z.looseObject({
  spatial_merge_size: patchSide.default(2),
  rope_parameters: z.looseObject({ rope_theta: positiveNumber.nullish() }).nullish(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parsePaddleOcrVlConfig(json: unknown): PaddleOcrVlConfig {
  const root = parseConfigObject(rootFields, json, "");
  const [text, path] = root.text_config == null ? [root, ""] : [root.text_config, "text_config"];
  refuseOtherThan(root, "", { ...neutralFields, model_type: ["paddleocr_vl"] });
  if (path !== "") refuseOtherThan(text, path, { ...neutralFields, model_type: ["paddleocr_vl_text"] });
  const { use_bias: hasBias, tie_word_embeddings: tiesInText } = parseConfigObject(textFields, text, path);
  // One field of ERNIE for those of Llama.
  const biases = { attention_bias: hasBias ?? false, mlp_bias: hasBias ?? false };
  const withBiases = root.text_config == null ? biases : { text_config: { ...root.text_config, ...biases } };
  // As in transformers: a field at the top level unties nothing alone. A head in the checkpoint counts in any case.
  const isUntied = root.text_config != null && tiesInText === false && root.tie_word_embeddings === false;
  const { visionJson, ...config } = parseQwenVlText(
    { ...rootDefaults, ...root, ...withBiases, tie_word_embeddings: !isUntied },
    textDefaults,
  );
  return { ...config, vision: parseTower(visionJson), imageOptions: { resizes_like: "paddleocr" } };
}

function parseTower(json: unknown): PaddleOcrVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: ["paddleocr_vl", "paddleocr_vl_vision"] });
  refuseOtherThan(fields.rope_parameters ?? {}, `${path}.rope_parameters`, {
    rope_type: ["axial"],
    partial_rotary_factor: [1],
  });
  const given = { intermediate_size: 4304, num_hidden_layers: 27, ...fields };
  const transformer = parseVisionConfig(given, path, defaultTower);
  const { hiddenSize, numHeads } = transformer;
  if ((hiddenSize / numHeads) % 4 !== 0) {
    const reason = `hidden_size ${hiddenSize} does not divide into heads whose size is a multiple of 4`;
    throw unsupportedField(path, "num_attention_heads", numHeads, reason);
  }
  return {
    transformer,
    embedDim: hiddenSize,
    numLayers: transformer.numLayers,
    numHeads,
    intermediateSize: transformer.intermediateSize,
    numChannels: transformer.numChannels,
    patchSize: transformer.patchSize,
    temporalPatchSize: 1,
    mergeSize: fields.spatial_merge_size,
    ropeTheta: fields.rope_parameters?.rope_theta ?? 10_000,
    positionsPerSide: patchesPerSide(transformer),
  };
}
