/** Qwen3-VL: Qwen2-VL's pictures, and a tower that also gives features to the decoder's first layers. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { qwen2VlInputs } from "../qwen2-vl/processor.ts";
import { parseQwen3VlConfig, parseQwen3VlMoeConfig } from "./config.ts";
import { buildVisionTower } from "./vision-tower.ts";

export const qwen3VlDefinition: ModelDefinition = {
  architecture: "Qwen3VLForConditionalGeneration",
  images: qwen2VlInputs,
  configure: (json) => configurePatchModel(parseQwen3VlConfig(json), buildVisionTower),
};

export const qwen3VlMoeDefinition: ModelDefinition = {
  architecture: "Qwen3VLMoeForConditionalGeneration",
  images: qwen2VlInputs,
  configure: (json) => configurePatchModel(parseQwen3VlMoeConfig(json), buildVisionTower),
};
