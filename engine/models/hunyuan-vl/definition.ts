/** HunyuanOCR: pictures in their own sizes, whose embeddings have a column, a row and the number of their picture. */
import type { GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { patchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs } from "../qwen2-vl/processor.ts";
import { parseHunYuanVlConfig } from "./config.ts";
import { numEmbeddings, promptPositions } from "./prompt-positions.ts";
import { buildVisionTower, towerNames } from "./vision-tower.ts";
import { createXdRotary } from "./xd-rotary.ts";

/** Equals Hugging Face's HunYuanVLProcessor. */
const images = createPatchInputs(
  { imageStart: "<｜hy_place▁holder▁no▁100｜>", imageEnd: "<｜hy_place▁holder▁no▁101｜>" },
  { count: numEmbeddings, place: promptPositions, ownOptions: [] },
);

const headNorms = { query: "query_layernorm", key: "key_layernorm" };

export const hunYuanVlDefinition: ModelDefinition = {
  architecture: "HunYuanVLForConditionalGeneration",
  images,
  configure(json): ConfiguredModel {
    const { text, sections, vision, imageTokenId } = parseHunYuanVlConfig(json);
    const { headDim, rope } = text;
    return patchModel(
      {
        vision,
        imageTokenId,
        dimensions: decoderDimensions(text),
        maxPositionEmbeddings: text.maxPositionEmbeddings,
        buildDecoder(context: GraphContext, prefix: string, maxModelLen: number): void {
          buildDecoderGraph(context, {
            config: text,
            prefix,
            headName: "lm_head",
            acceptsImages: true,
            maxModelLen,
            firstRotation: {
              headNorms,
              create: (own, inputs) => createXdRotary(own, inputs, { rope, headDim, sections, maxModelLen }),
            },
          });
        },
        imageOptions: { resizes_like: "hunyuan" },
        towerNames,
        refusesExports: "exports take the patches of this model row by row, and Fovea makes them square by square",
      },
      buildVisionTower,
    );
  },
};
