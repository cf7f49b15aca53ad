/** Pictures and videos in Qwen2-VL's prompts: one token per square of patches. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { embeddingsGrid } from "../../multimodal/embeddings-grid.ts";
import type { ImageMarkers, MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { PromptPositions } from "../../multimodal/prompt-positions.ts";
import type { ProcessorContext } from "../model-definition.ts";
import type { SquareGrid } from "../patches/square-grid.ts";
import { largestImageSize, parseImageOptions, squareGrid, type Qwen2VlImageOptions } from "./image-options.ts";
import { promptPositions, type PlacedGrid } from "./prompt-positions.ts";
import { createVideoInputs, timeOf, type PatchVideos } from "./video-inputs.ts";
import { qwen2VlVideos } from "./videos.ts";

/** The embeddings of a grid of squares. */
export interface GridLayout {
  count(this: void, grid: SquareGrid): number;
  /**
   * Positions of a prompt; each image has `count` tokens from `offset` on. Undefined for a decoder whose positions are
   * the tokens' indices.
   */
  readonly place: ((numTokens: number, images: readonly PlacedGrid[]) => PromptPositions) | undefined;
  /** Options that a request may set beside those of all models. */
  readonly ownOptions: readonly string[];
}

/** Of Qwen2-VL. */
export const squaresOnly: GridLayout = {
  count: ({ rows, columns }) => rows * columns,
  place: promptPositions,
  ownOptions: ["resample"],
};

export const visionMarkers: ImageMarkers = { imageStart: "<|vision_start|>", imageEnd: "<|vision_end|>" };

/** Equals Hugging Face's Qwen2VLProcessor. */
export const qwen2VlInputs = createPatchInputs(visionMarkers, squaresOnly, qwen2VlVideos);

/**
 * Pictures that become one image token for each square of patches.
 *
 * @param layout Given if there are other embeddings.
 * @param videosOf Null for a model that knows only pictures.
 */
export function createPatchInputs(
  markers: ImageMarkers,
  { count, place, ownOptions }: GridLayout = squaresOnly,
  videosOf: PatchVideos | ((context: ProcessorContext) => PatchVideos) | null = null,
): MultiModalInputs<ProcessorContext> {
  const countOf = (size: ImageSize, options: Qwen2VlImageOptions): number => count(squareGrid(size, options));
  return {
    pixelProgram: moduleUrl("./pixel-program", import.meta.url),
    createProcessingInfo(context) {
      const options = checkedOptions(context);
      return pictureInfo(largestImageSize(options, count), {
        minTokensPerItem: count({ rows: 1, columns: 1 }),
        numImageTokens: (size) => countOf(size, options),
      });
    },
    createProcessor(_, context) {
      const { imageToken, imageTokenId, preprocessorConfig, pixels, tokenId } = context;
      const ofCheckpoint = parseImageOptions(preprocessorConfig);
      const videos = typeof videosOf === "function" ? videosOf(context) : videosOf;
      const { merge_size: mergeSize } = ofCheckpoint;
      const videoTokenId = (videos && tokenId(videos.token)) ?? imageTokenId;
      return {
        ...(videos && { videos: createVideoInputs(videos, ofCheckpoint, context) }),
        imagePlaceholder: imageToken,
        imagePlaceholderTokenIds: [imageTokenId],
        markers,
        options: preprocessorConfig,
        requestOptions: new Set(["size", "min_pixels", "max_pixels", ...ownOptions, ...scalingOptions]),
        // As in transformers, if a checkpoint has the older names and a caller sets the newer one.
        replacedOptions: { size: ["min_pixels", "max_pixels"] },
        checkOptions: parseImageOptions,
        numImageTokens: (size, options) => countOf(size, parseImageOptions(options)),
        ...pictureFields(pixels, ["pixel_values", "image_grid_thw"]),
        promptUpdates(items, options) {
          const parsed = parseImageOptions(options);
          return [
            {
              mode: "replacement",
              target: [imageTokenId],
              content(itemIndex) {
                const item = items[itemIndex]!;
                const grid =
                  item.kind === "embeddings"
                    ? embeddingsGrid(item, mergeSize, itemIndex, count)
                    : squareGrid(item.imageSize, parsed);
                const isOfVideo = item.kind === "image" && item.isOfVideo === true;
                return Array<number>(count(grid)).fill(isOfVideo ? videoTokenId : imageTokenId);
              },
            },
          ];
        },
        ...(place && {
          promptPositions(numTokens, images) {
            const placed = images.map(({ placeholder, tensors, videoItem }): PlacedGrid => {
              const [, rows, columns] = Array.from((tensors.get("image_grid_thw") as ItemTensor<"int64">).data, Number);
              return {
                offset: placeholder.offset,
                rows: rows! / mergeSize,
                columns: columns! / mergeSize,
                ...(videoItem && { item: { index: videoItem.index, time: timeOf(videoItem, ofCheckpoint) } }),
              };
            });
            return place(numTokens, placed);
          },
        }),
      };
    },
  };
}

/**
 * Throws EngineError like `parseImageOptions`, and `invalid_checkpoint` for patches that the encoder does not accept.
 */
function checkedOptions({ preprocessorConfig, visionEncoder }: ProcessorContext): Qwen2VlImageOptions {
  const options = parseImageOptions(preprocessorConfig);
  const numFeatures = 3 * options.temporal_patch_size * options.patch_size ** 2;
  const [, expectedFeatures] = visionEncoder.inputs[0]!.shape;
  if (options.squareSize === visionEncoder.imageSize && numFeatures === expectedFeatures) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes squares of ${options.squareSize} pixels and patches of ${numFeatures} values; its vision encoder expects ${visionEncoder.imageSize} and ${expectedFeatures}.`,
  );
}
