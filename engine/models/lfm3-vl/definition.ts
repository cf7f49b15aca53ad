/** LFM3-VL: Qwen3-VL's processors of pictures and videos before LFM3's decoder, to which squares are tokens like others. */
import { buildLfmDecoder } from "../lfm2/decoder-graph.ts";
import { lfmDimensions } from "../lfm2/definition.ts";
import type { ModelDefinition } from "../model-definition.ts";
import { patchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs, squaresOnly, visionMarkers } from "../qwen2-vl/processor.ts";
import { qwen3VlVideos } from "../qwen3-vl/videos.ts";
import { parseLfm3VlConfig } from "./config.ts";
import { planeSizes } from "./spatial-convolution.ts";
import { buildVisionTower, towerNames } from "./vision-tower.ts";

/** Equals Hugging Face's Lfm3VlProcessor. */
const images = createPatchInputs(visionMarkers, { ...squaresOnly, place: undefined }, qwen3VlVideos);

export const lfm3VlDefinition: ModelDefinition = {
  architecture: "Lfm3VlForConditionalGeneration",
  images,
  configure(json) {
    const { text, vision, imageTokenId } = parseLfm3VlConfig(json);
    return patchModel(
      {
        vision,
        imageTokenId,
        dimensions: { ...lfmDimensions(text), takesPositions: false },
        maxPositionEmbeddings: text.maxPositionEmbeddings,
        towerNames,
        sizesOf: (numSquares) => planeSizes(numSquares, vision.mergeSize),
        buildDecoder: (context, prefix, maxModelLen) =>
          buildLfmDecoder(context, { config: text, prefix, headName: "lm_head", acceptsImages: true, maxModelLen }),
      },
      buildVisionTower,
    );
  },
};
