/** PaddleOCR-VL: pictures in their own sizes, with three-axis positions for their embeddings. */
import type { ModelDefinition } from "../model-definition.ts";
import { configurePatchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs } from "../qwen2-vl/processor.ts";
import { parsePaddleOcrVlConfig } from "./config.ts";
import { buildVisionTower, towerNames } from "./vision-tower.ts";

/** Equals Hugging Face's PaddleOCRVLProcessor. */
const images = createPatchInputs({ imageStart: "<|IMAGE_START|>", imageEnd: "<|IMAGE_END|>" });

const refusesExports = "exports take the patches of this model row by row, and Fovea makes them square by square";

export const paddleOcrVlDefinition: ModelDefinition = {
  architecture: "PaddleOCRVLForConditionalGeneration",
  images,
  configure: (json) =>
    configurePatchModel({ ...parsePaddleOcrVlConfig(json), towerNames, refusesExports }, buildVisionTower),
};
