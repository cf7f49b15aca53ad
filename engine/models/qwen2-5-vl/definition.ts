/** Qwen2.5-VL: Qwen2-VL with another tower. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { qwen2VlInputs } from "../qwen2-vl/processor.ts";
import { parseQwen25VlConfig } from "./config.ts";
import { buildVisionTower } from "./vision-tower.ts";

export const qwen25VlDefinition: ModelDefinition = {
  architecture: "Qwen2_5_VLForConditionalGeneration",
  images: qwen2VlInputs,
  configure: (json) => configurePatchModel(parseQwen25VlConfig(json), buildVisionTower),
};
