/** Configuration of the CLIP vision tower. */
import { z } from "zod";
import { parseActivation, type ActivationName } from "../activation.ts";
import { count, parseConfigObject, positiveNumber, refuseOtherThan, unsupportedField } from "../config-field.ts";

export interface VisionConfig {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numChannels: number;
  /** Side of the square picture, in pixels. */
  readonly imageSize: number;
  readonly patchSize: number;
  readonly activation: ActivationName;
  readonly layerNormEpsilon: number;
}

/** A side, or equal height and width. */
const side = z.union([count, z.tuple([count, count]).refine(([height, width]) => height === width)]);

const visionFields = z.looseObject({
  hidden_size: count.default(768),
  intermediate_size: count.default(3072),
  num_hidden_layers: count.default(12),
  num_attention_heads: count.default(12),
  num_channels: count.default(3),
  image_size: side.default(224),
  patch_size: side.default(32),
  hidden_act: z.string().default("quick_gelu"),
  layer_norm_eps: positiveNumber.default(1e-5),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model`, naming the field. */
export function parseVisionConfig(config: unknown, path: string): VisionConfig {
  const fields = parseConfigObject(visionFields, config, path);
  refuseOtherThan(config, path, { num_channels: [3], quantization_config: [] });
  const imageSize = Array.isArray(fields.image_size) ? fields.image_size[0] : fields.image_size;
  const patchSize = Array.isArray(fields.patch_size) ? fields.patch_size[0] : fields.patch_size;
  if (imageSize % patchSize !== 0) {
    throw unsupportedField(path, "patch_size", patchSize, `image_size ${imageSize} is no multiple of it`);
  }
  if (fields.hidden_size % fields.num_attention_heads !== 0) {
    const reason = `hidden_size ${fields.hidden_size} is no multiple of it`;
    throw unsupportedField(path, "num_attention_heads", fields.num_attention_heads, reason);
  }
  return {
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    numLayers: fields.num_hidden_layers,
    numHeads: fields.num_attention_heads,
    numChannels: fields.num_channels,
    imageSize,
    patchSize,
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
    layerNormEpsilon: fields.layer_norm_eps,
  };
}

/** Patches of one picture, without the class token. */
export function numPatches(config: VisionConfig): number {
  return (config.imageSize / config.patchSize) ** 2;
}
