/** Pictures in prompts of LFM2-VL: tiles after tokens of their places, and then the whole picture, between two markers. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import {
  embeddingsPerTile,
  largestPicture,
  layOutPicture,
  numEmbeddings,
  parseLfm2TileOptions,
  type Lfm2TileOptions,
} from "./tiles.ts";

const startOfImage = "<|image_start|>";
const endOfImage = "<|image_end|>";
const thumbnail = "<|img_thumbnail|>";

/** Equals Hugging Face's Lfm2VlProcessor. */
export const lfm2VlInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo({ preprocessorConfig }) {
    const options = parseLfm2TileOptions(preprocessorConfig);
    return pictureInfo(largestPicture(options), {
      // An embedding and both markers.
      minTokensPerItem: 3,
      numImageTokens: (size) => numEmbeddings(size, options),
    });
  },
  createProcessor(_, { imageToken, imageTokenId, pixels, preprocessorConfig, tokenId }) {
    const start = requiredToken(tokenId, startOfImage);
    const end = requiredToken(tokenId, endOfImage);
    const placeToken = (row: number, column: number): number =>
      requiredToken(tokenId, `<|img_row_${row}_col_${column}|>`);
    // The farthest places, so that no picture is the first to need one that is missing.
    const { max_tiles: mostTiles } = parseLfm2TileOptions(preprocessorConfig);
    for (let rows = 1; rows <= mostTiles; rows++) placeToken(rows, Math.floor(mostTiles / rows));
    const features = (count: number): number[] => Array.from({ length: count }, () => imageTokenId);
    /** The tokens between both markers. */
    const layOut = (item: UpdateItem, parsed: Lfm2TileOptions): number[] => {
      if (item.kind === "embeddings") return features(wholeEmbeddings(item.numEmbeddings, parsed));
      const { tiles, whole } = layOutPicture(item.imageSize, parsed);
      const ofWhole = whole === null ? [] : features(whole.rows * whole.columns);
      if (tiles === null) return ofWhole;
      const tokenIds: number[] = [];
      for (let row = 1; row <= tiles.rows; row++) {
        for (let column = 1; column <= tiles.columns; column++) {
          tokenIds.push(placeToken(row, column), ...features(embeddingsPerTile(parsed)));
        }
      }
      return whole === null ? tokenIds : [...tokenIds, requiredToken(tokenId, thumbnail), ...ofWhole];
    };
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set([
        "do_image_splitting",
        "min_tiles",
        "max_tiles",
        "use_thumbnail",
        "min_image_tokens",
        "max_image_tokens",
        "max_pixels_tolerance",
        "resample",
        ...scalingOptions,
      ]),
      checkOptions: parseLfm2TileOptions,
      frameOptions: (options) => ({ ...options, do_image_splitting: false }),
      numImageTokens: (size, changed) => numEmbeddings(size, parseLfm2TileOptions(changed)),
      ...pictureFields(pixels, ["pixel_values", "spatial_shapes"]),
      promptUpdates(items, changed) {
        const parsed = parseLfm2TileOptions(changed);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content: (itemIndex) => ({
              full: [start, ...layOut(items[itemIndex]!, parsed), end],
              isEmbed: selectTokenIds(imageTokenId),
            }),
          },
        ];
      },
    };
  },
};

/** Throws EngineError `invalid_argument` for embeddings of a picture that was cut, whose places are unknown. */
function wholeEmbeddings(count: number, { max_image_tokens: most }: Lfm2TileOptions): number {
  if (count <= most) return count;
  throw new EngineError(
    "invalid_argument",
    `This model accepts embeddings only for pictures that are not cut, which have at most ${most} rows; got ${count}.`,
  );
}
