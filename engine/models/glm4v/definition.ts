/** GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: pictures in their own sizes, with three-axis positions for their embeddings. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs, squaresOnly } from "../qwen2-vl/processor.ts";
import { parseGlm4vConfig, parseGlm4vMoeConfig, parseGlmOcrConfig } from "./config.ts";
import { glmVideosOf } from "./videos.ts";
import { buildVisionTower } from "./vision-tower.ts";

/** Equals Hugging Face's Glm4vProcessor and Glm46VProcessor. */
const images = createPatchInputs(
  { imageStart: "<|begin_of_image|>", imageEnd: "<|end_of_image|>" },
  squaresOnly,
  glmVideosOf,
);

export const glm4vDefinition: ModelDefinition = {
  architecture: "Glm4vForConditionalGeneration",
  images,
  configure: (json) => configurePatchModel(parseGlm4vConfig(json), buildVisionTower),
};

/** The dense GLM-4.6V, which transformers gives an architecture of its own, with GLM-4.1V's parts. */
export const glm46vDefinition: ModelDefinition = {
  ...glm4vDefinition,
  architecture: "Glm46VForConditionalGeneration",
};

/** GLM-4.5V and GLM-4.6V: GLM-4.1V's tower, and GLM-4.5's decoder with experts. */
export const glm4vMoeDefinition: ModelDefinition = {
  architecture: "Glm4vMoeForConditionalGeneration",
  images,
  configure: (json) => configurePatchModel(parseGlm4vMoeConfig(json), buildVisionTower),
};

export const glmOcrDefinition: ModelDefinition = {
  architecture: "GlmOcrForConditionalGeneration",
  images,
  configure: (json) => configurePatchModel(parseGlmOcrConfig(json), buildVisionTower),
};
