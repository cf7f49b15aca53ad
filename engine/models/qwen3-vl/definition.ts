/** Qwen3-VL: Qwen2-VL's pictures, videos with times, and a tower that also gives features to the decoder's first layers. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs, squaresOnly, visionMarkers } from "../qwen2-vl/processor.ts";
import { parseQwen3VlConfig, parseQwen3VlMoeConfig } from "./config.ts";
import { qwen3VlVideos } from "./videos.ts";
import { buildVisionTower } from "./vision-tower.ts";

/** Equals Hugging Face's Qwen3VLProcessor. */
export const qwen3VlInputs = createPatchInputs(visionMarkers, squaresOnly, qwen3VlVideos);

export const qwen3VlDefinition: ModelDefinition = {
  architecture: "Qwen3VLForConditionalGeneration",
  images: qwen3VlInputs,
  configure: (json) => configurePatchModel(parseQwen3VlConfig(json), buildVisionTower),
};

export const qwen3VlMoeDefinition: ModelDefinition = {
  architecture: "Qwen3VLMoeForConditionalGeneration",
  images: qwen3VlInputs,
  configure: (json) => configurePatchModel(parseQwen3VlMoeConfig(json), buildVisionTower),
};
