/**
 * HunyuanOCR: pictures in their own sizes, whose embeddings have a column, a row and the number of their picture. And its
 * decoder alone, the dense text models of HunYuan.
 */
import type { GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { patchModel } from "../patches/patch-encoder.ts";
import { createPatchInputs } from "../qwen2-vl/processor.ts";
import { parseHunYuanDenseConfig, parseHunYuanVlConfig } from "./config.ts";
import { createFirstRotary } from "./first-rotary.ts";
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

export const hunYuanDenseDefinition: ModelDefinition = {
  architecture: "HunYuanDenseV1ForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parseHunYuanDenseConfig(json);
    const { headDim, rope, maxPositionEmbeddings } = config;
    return {
      decoder: decoderDimensions(config),
      maxPositionEmbeddings,
      imageTokenId: null,
      visionEncoder: null,
      buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
        buildDecoderGraph(context, {
          config,
          prefix: "model.",
          headName: "lm_head",
          acceptsImages,
          maxModelLen,
          firstRotation: {
            headNorms,
            create: (own, inputs) => createFirstRotary(own, inputs, { rope, headDim, maxModelLen }),
          },
        });
      },
    };
  },
};
