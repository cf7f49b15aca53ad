/** Pictures in prompts of MiniCPM-V: its number, the whole picture, and its slices row by row, each between markers. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { embeddingsGrid, gridField } from "../../multimodal/embeddings-grid.ts";
import type { MultiModalInputs, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import { canvasPositions, type CanvasPicture } from "./canvas-positions.ts";
import { parseMiniCpmVImageOptions, type SliceOptions } from "./image-options.ts";
import type { PatchGrid } from "./patches.ts";
import { largestImageSize, largestWholeSize, numCropEmbeddings, sliceLayout, type SliceLayout } from "./slices.ts";
import { createMiniCpmVVideos, videoToken } from "./videos.ts";

const markers = {
  number: ["<image_id>", "</image_id>"],
  whole: ["<image>", "</image>"],
  slice: ["<slice>", "</slice>"],
} as const;

/** Equals Hugging Face's MiniCPMV4_6Processor for images, whose numbers are those of the other models too. */
export const miniCpmVInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo({ preprocessorConfig }) {
    const options = parseMiniCpmVImageOptions(preprocessorConfig);
    return pictureInfo(largestImageSize(options), {
      // An embedding and both markers.
      minTokensPerItem: 3,
      numImageTokens: (size) => numEmbeddings(size, options),
    });
  },
  createProcessor(_, { imageToken, imageTokenId, preprocessorConfig, pixels, tokenId }) {
    for (const marker of Object.values(markers).flat()) requiredToken(tokenId, marker);
    const videoTokenId = tokenId(videoToken);
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set([
        "max_slice_nums",
        "scale_resolution",
        "slice_mode",
        "small_image_upsize",
        "use_image_id",
        "resample",
        ...scalingOptions,
      ]),
      checkOptions: parseMiniCpmVImageOptions,
      frameOptions: (options) => ({ ...options, slice_mode: false }),
      numImageTokens: (size, options) => numEmbeddings(size, parseMiniCpmVImageOptions(options)),
      ...pictureFields(pixels, ["pixel_values", "position_ids", "slice_grid"]),
      promptUpdates(items, changed) {
        const options = parseMiniCpmVImageOptions(changed);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content(itemIndex) {
              const item = items[itemIndex]!;
              const isOfVideo = item.kind === "image" && item.isOfVideo === true && videoTokenId !== null;
              const token = isOfVideo ? videoToken : imageToken;
              return {
                full: spell(item, options, token),
                isEmbed: selectTokenIds(isOfVideo ? videoTokenId : imageTokenId),
              };
            },
          },
        ];
      },
      numberTokens(index, changed) {
        if (!parseMiniCpmVImageOptions(changed).numbersPictures) return [];
        // The tokenizer spells numbers digit by digit.
        const [start, end] = markers.number;
        return [start, ...Array.from(String(index)), end].map((token) => requiredToken(tokenId, token));
      },
    };
  },
};

/** Equals Hugging Face's MiniCPMV4_6Processor. */
export const miniCpmV46Inputs: MultiModalInputs<ProcessorContext> = {
  ...miniCpmVInputs,
  createProcessor: (info, context) => ({
    ...miniCpmVInputs.createProcessor(info, context),
    videos: createMiniCpmVVideos(context),
  }),
};

/** Like `miniCpmVInputs`, with the positions of MiniCPM-V 4.7. */
export const miniCpmV47Inputs: MultiModalInputs<ProcessorContext> = {
  ...miniCpmVInputs,
  createProcessor(info, context) {
    const { markerIds, mergeSize } = parseMiniCpmVImageOptions(context.preprocessorConfig);
    const markerSet = new Set(markerIds);
    const processor = miniCpmVInputs.createProcessor(info, context);
    return {
      ...processor,
      promptUpdates(items, options) {
        // Positions depend on the grid of a picture.
        for (const [index, item] of items.entries()) {
          if (item.kind === "embeddings") embeddingsGrid(item, mergeSize, index);
        }
        return processor.promptUpdates(items, options);
      },
      promptPositions(_, images, tokenIds) {
        const pictures = images.map(({ placeholder, tensors }) => ({ placeholder, ...gridsOf(tensors, mergeSize) }));
        return canvasPositions(tokenIds, pictures, markerSet);
      },
    };
  },
};

/** In embeddings. */
function gridsOf(tensors: ReadonlyMap<string, ItemTensor>, mergeSize: number): Pick<CanvasPicture, "whole" | "slices"> {
  const given = tensors.get(gridField);
  const sizes = Array.from(((given ?? tensors.get("slice_grid")) as ItemTensor<"int64">).data, Number);
  const grid = (index: number): PatchGrid => ({
    rows: sizes[index]! / mergeSize,
    columns: sizes[index + 1]! / mergeSize,
  });
  if (given !== undefined) return { whole: grid(1), slices: null };
  const [, , rows, columns] = sizes as [number, number, number, number];
  return { whole: grid(0), slices: rows * columns === 0 ? null : { rows, columns, each: grid(4) } };
}

function numEmbeddings(size: ImageSize, options: SliceOptions): number {
  return numCropEmbeddings(sliceLayout(size, options), options).total;
}

/** Throws EngineError `invalid_argument` for embeddings of more than the whole picture, whose places are unknown. */
function spell(item: UpdateItem, options: SliceOptions, imageToken: string): string {
  if (item.kind === "image") return spellCrops(sliceLayout(item.imageSize, options), options, imageToken);
  const most = numCropEmbeddings({ whole: largestWholeSize(options), slices: null }, options).total;
  if (item.numEmbeddings <= most) return between(markers.whole, imageToken.repeat(item.numEmbeddings));
  throw new EngineError(
    "invalid_argument",
    `This model accepts embeddings only for pictures without slices, which have at most ${most} rows; got ${item.numEmbeddings}.`,
  );
}

function spellCrops(layout: SliceLayout, options: SliceOptions, imageToken: string): string {
  const { ofWhole, ofSlice } = numCropEmbeddings(layout, options);
  const whole = between(markers.whole, imageToken.repeat(ofWhole));
  if (layout.slices === null) return whole;
  const { rows, columns } = layout.slices;
  const row = between(markers.slice, imageToken.repeat(ofSlice)).repeat(columns);
  return whole + Array.from({ length: rows }, () => row).join("\n");
}

function between([start, end]: readonly [string, string], content: string): string {
  return start + content + end;
}
