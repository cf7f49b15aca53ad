/** dots.ocr and dots.mocr: pictures in their own sizes before a Qwen2 decoder, to which they are tokens like others. */
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ModelDefinition } from "../model-definition.ts";
import { patchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs, squaresOnly } from "../qwen2-vl/processor.ts";
import { parseDotsOcrConfig } from "./config.ts";
import { buildVisionTower, towerNames } from "./vision-tower.ts";

const images = createPatchInputs(
  { imageStart: "<|img|>", imageEnd: "<|endofimg|>" },
  { ...squaresOnly, place: undefined },
);

export const dotsOcrDefinition: ModelDefinition = {
  architecture: "DotsOCRForCausalLM",
  images,
  // For a list of parts, the template on the hub leaves out the tokens around a user's message, which training had.
  spellsImages: true,
  configure(json) {
    const { text, vision, imageTokenId } = parseDotsOcrConfig(json);
    return patchModel(
      {
        vision,
        imageTokenId,
        dimensions: { ...decoderDimensions(text), takesPositions: false },
        maxPositionEmbeddings: text.maxPositionEmbeddings,
        buildDecoder: (context, prefix, maxModelLen) =>
          buildDecoderGraph(context, { config: text, prefix, headName: "lm_head", acceptsImages: true, maxModelLen }),
        towerNames,
      },
      buildVisionTower,
    );
  },
};
