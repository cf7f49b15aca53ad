/**
 * Pictures in prompts of Idefics3 and SmolVLM: every tile is preceded by its position, and the whole picture comes
 * last.
 */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { layOutTiles, layOutWhole } from "./layout.ts";
import { numTiles, parseTileOptions, tileGrid, type TileGrid, type TileOptions } from "./tiles.ts";
import { createSmolVlmVideos } from "./videos.ts";

/** Equals Hugging Face's Idefics3Processor. */
export const idefics3Inputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const { numImageTokens } = context.visionEncoder;
    const options = checkedOptions(context);
    const edge = options.size.longest_edge;
    return pictureInfo(
      { width: edge, height: edge },
      {
        minTokensPerItem: numImageTokens,
        numImageTokens: (size) => numTiles(tileGrid(size, options)) * numImageTokens,
      },
    );
  },
  createProcessor(info, context) {
    const { imageToken, imageTokenId, preprocessorConfig, pixels, visionEncoder } = context;
    const features = imageToken.repeat(visionEncoder.numImageTokens);
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set(["size", "do_image_splitting", "resample", ...scalingOptions]),
      checkOptions: parseTileOptions,
      frameOptions: (options) => ({ ...options, do_image_splitting: false }),
      numImageTokens: (size, options) =>
        numTiles(tileGrid(size, parseTileOptions(options))) * visionEncoder.numImageTokens,
      ...pictureFields(pixels, ["pixel_values"]),
      promptUpdates(items, options) {
        const tileOptions = parseTileOptions(options);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content: (itemIndex) => ({
              full: layOut(gridOf(items[itemIndex]!, tileOptions, visionEncoder.numImageTokens), features),
              isEmbed: selectTokenIds(imageTokenId),
            }),
          },
        ];
      },
    };
  },
};

/** Equals Hugging Face's SmolVLMProcessor. */
export const smolVlmInputs: MultiModalInputs<ProcessorContext> = {
  ...idefics3Inputs,
  createProcessor: (info, context) => ({
    ...idefics3Inputs.createProcessor(info, context),
    videos: createSmolVlmVideos(context),
  }),
};

/** Throws EngineError like `parseTileOptions`, and `invalid_checkpoint` for tiles that the encoder does not accept. */
function checkedOptions({ preprocessorConfig, visionEncoder: { imageSize } }: ProcessorContext): TileOptions {
  const options = parseTileOptions(preprocessorConfig);
  const tile = options.max_image_size.longest_edge;
  if (tile === imageSize) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes tiles of ${tile}x${tile}; its vision encoder expects ${imageSize}x${imageSize}.`,
  );
}

/** Throws EngineError `invalid_argument` for embeddings of more than one tile, whose places are unknown. */
function gridOf(item: UpdateItem, options: TileOptions, numImageTokens: number): Pick<TileGrid, "rows" | "columns"> {
  if (item.kind === "image") return tileGrid(item.imageSize, options);
  if (item.numEmbeddings === numImageTokens) return { rows: 0, columns: 0 };
  throw new EngineError(
    "invalid_argument",
    `This model accepts embeddings only for pictures of one tile, which have ${numImageTokens} rows; got ${item.numEmbeddings}.`,
  );
}

function layOut(grid: Pick<TileGrid, "rows" | "columns">, features: string): string {
  const tiles = grid.rows > 0 ? `${layOutTiles(grid, features)}\n` : "";
  return `${tiles}${layOutWhole(features)}`;
}
