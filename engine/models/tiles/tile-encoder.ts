/** Vision encoders of pictures in tiles of one size, one picture in a run: the frame around their graphs. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { VisionEncoderInput } from "../built-model.ts";
import type { GraphContext } from "../graph-context.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";

export interface TileEncoderOptions extends Pick<
  VisionEncoderDefinition,
  "hasProjector" | "imageOptions" | "largestSizes" | "refusesExports"
> {
  readonly numChannels: number;
  /** Side of a tile, in pixels. */
  readonly imageSize: number;
  /** Number of embeddings of one tile. */
  readonly numImageTokens: number;
  /** Width of the decoder's embeddings of images: its own, or with features for its first layers. */
  readonly hiddenSize: number;
  /** Inputs besides the tiles. */
  readonly moreInputs?: readonly VisionEncoderInput[];
  /**
   * Builds the graph from pixels, float [numTiles, numChannels, imageSize, imageSize], to the picture's embeddings,
   * [numEmbeddings, hiddenSize].
   *
   * @param inputs Those of `moreInputs`, in their order, each behind a dimension of 1.
   */
  embed(this: void, context: GraphContext, pixels: Value, inputs: readonly Value[]): Value;
}

const pixelValues = "pixel_values";
export const tiles = "numTiles";
export const embeddings = "numEmbeddings";

/** From `pixel_values` [1, numTiles, ...] to `image_features` [1, numEmbeddings, hiddenSize]. */
export function createTileEncoder(options: TileEncoderOptions): VisionEncoderDefinition {
  const { numChannels, imageSize, numImageTokens, hiddenSize, moreInputs = [] } = options;
  const tileShape = [numChannels, imageSize, imageSize];
  return {
    ...(options.hasProjector !== undefined && { hasProjector: options.hasProjector }),
    ...(options.imageOptions && { imageOptions: options.imageOptions }),
    ...(options.largestSizes && { largestSizes: options.largestSizes }),
    ...(options.refusesExports !== undefined && { refusesExports: options.refusesExports }),
    inputs: [{ name: pixelValues, elementType: "float32", shape: [tiles, ...tileShape] }, ...moreInputs],
    imageSize,
    numImageTokens,
    build(context) {
      const { graph, precision } = context;
      const input = graph.input(pixelValues, "float32", [1, tiles, ...tileShape]);
      const inputs = moreInputs.map(({ name, elementType, shape }) => graph.input(name, elementType, [1, ...shape]));
      const separate = reshapeTo(graph, "tiles", input, [tiles, ...tileShape]);
      const embedded = options.embed(context, cast(graph, "pixels", separate, precision.activations), inputs);
      const item = cast(graph, "projected.cast", embedded, "float32");
      graph.output(reshapeTo(graph, "image_features", item, [1, embeddings, hiddenSize]));
    },
  };
}
