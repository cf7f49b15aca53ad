/** Pictures in prompts of Granite-Docling: each tile behind its place, and the whole page last if it has several. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { createDummyInputsBuilder } from "../../multimodal/dummy-inputs.ts";
import type { MultiModalInputs, ProcessorOptions, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo } from "../../multimodal/processing-info.ts";
import { scalingOptions, unsupportedOption } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import { layOutTiles, layOutWhole } from "../idefics3/layout.ts";
import { lineBreakTokens } from "../line-break-tokens.ts";
import type { ProcessorContext } from "../model-definition.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";
import {
  largestPage,
  numPageEmbeddings,
  pageGrid,
  parsePageOptions,
  tileEmbeddings,
  type PageOptions,
} from "./tiles.ts";

const requestOptions = ["crop_to_patches", "min_patches", "max_patches", "fine_route", "resample", ...scalingOptions];
const denseOptions = ["dense_max_patches", "dense_max_scale", "dense_min_aspect", "dense_max_aspect"];

/** The encoder's input for the path of a page; an encoder of one path has none. */
export const fineRoute = "fine_route";

/** Equals Hugging Face's GraniteDoclingProcessor. */
export const graniteDoclingInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const { imageSize, numImageTokens } = context.visionEncoder;
    const options = servedOptions(context, context.preprocessorConfig);
    if (options.tile !== imageSize) {
      throw new EngineError(
        "invalid_checkpoint",
        `The checkpoint's image processor makes tiles of ${options.tile}x${options.tile}; its vision encoder expects ${imageSize}x${imageSize}.`,
      );
    }
    return pictureInfo(largestPage(options), {
      minTokensPerItem: tileEmbeddings(options, numImageTokens),
      numImageTokens: (size) => numPageEmbeddings(size, options, numImageTokens),
    });
  },
  createDummyInputs(info, { imageToken }) {
    return createDummyInputsBuilder(imageToken, info.imageSizeWithMostFeatures);
  },
  createProcessor(_, context) {
    const { imageToken, imageTokenId, preprocessorConfig, pixels, visionEncoder } = context;
    const { inputs, numImageTokens } = visionEncoder;
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set([...requestOptions, ...denseOptions]),
      checkOptions: (options) => servedOptions(context, options),
      frameOptions: (options) => ({ ...options, crop_to_patches: false }),
      numImageTokens: (size, options) => numPageEmbeddings(size, parsePageOptions(options), numImageTokens),
      ...pictureFields(
        pixels,
        inputs.map(({ name }) => name),
      ),
      joinTokens: lineBreakTokens(context),
      promptUpdates(items, options) {
        const pageOptions = parsePageOptions(options);
        const features = imageToken.repeat(tileEmbeddings(pageOptions, numImageTokens));
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content: (itemIndex) => ({
              full: layOut(gridOf(items[itemIndex]!, pageOptions, numImageTokens), features),
              isEmbed: selectTokenIds(imageTokenId),
            }),
          },
        ];
      },
    };
  },
};

/** Throws EngineError like `parsePageOptions`, and `unsupported_model` for a path that the checkpoint lacks. */
function servedOptions({ visionEncoder }: ProcessorContext, json: ProcessorOptions): PageOptions {
  const options = parsePageOptions(json);
  if (!options.fine_route || visionEncoder.inputs.some(({ name }) => name === fineRoute)) return options;
  throw unsupportedOption(fineRoute, "is true; the checkpoint has no fine path (use_fine_route in config.json)");
}

/** Throws EngineError `invalid_argument` for embeddings of more than one tile, whose places are unknown. */
function gridOf(item: UpdateItem, options: PageOptions, numImageTokens: number): TileGridSize {
  if (item.kind === "image") return pageGrid(item.imageSize, options);
  const ofTile = tileEmbeddings(options, numImageTokens);
  if (item.numEmbeddings === ofTile) return { rows: 1, columns: 1 };
  throw new EngineError(
    "invalid_argument",
    `This model accepts embeddings only for pictures of one tile, which have ${ofTile} rows; got ${item.numEmbeddings}.`,
  );
}

function layOut(grid: TileGridSize, features: string): string {
  const tiles = layOutTiles(grid, features);
  return grid.rows * grid.columns === 1 ? tiles : `${tiles}\n${layOutWhole(features)}`;
}
