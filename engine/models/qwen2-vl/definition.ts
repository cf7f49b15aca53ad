/** Qwen2-VL: pictures in their own sizes, with three-axis positions for their embeddings. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { parseQwen2VlConfig } from "./config.ts";
import { qwen2VlInputs } from "./processor.ts";
import { buildVisionTower } from "./vision-tower.ts";

export const qwen2VlDefinition: ModelDefinition = {
  architecture: "Qwen2VLForConditionalGeneration",
  images: qwen2VlInputs,
  configure: (json) => configurePatchModel(parseQwen2VlConfig(json), buildVisionTower),
};
