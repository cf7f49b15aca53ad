/** Vision encoders of one square picture each, all of the same size: the frame around their graphs. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";

export interface PictureEncoderOptions {
  readonly numChannels: number;
  /** Side of a picture, in pixels. */
  readonly imageSize: number;
  /** Number of embeddings of one picture. */
  readonly numImageTokens: number;
  /** Width of the decoder. */
  readonly hiddenSize: number;
  /** Whether `embed` builds its projector in a `projectorContext`. Default false. */
  readonly hasProjector?: boolean;
  /**
   * Builds the graph from pixels, float [numImages, numChannels, imageSize, imageSize], to the embeddings of all
   * pictures, [numImages * numImageTokens, hiddenSize].
   */
  embed(this: void, context: GraphContext, pixels: Value): Value;
}

const pixelValues = "pixel_values";
const images = "numImages";

/** From `pixel_values` to `image_features`, as in `VisionEncoderGraph`. */
export function createPictureEncoder(options: PictureEncoderOptions): VisionEncoderDefinition {
  const { numChannels, imageSize, numImageTokens, hiddenSize, hasProjector = false } = options;
  const pictureShape = [numChannels, imageSize, imageSize];
  return {
    inputs: [{ name: pixelValues, elementType: "float32", shape: pictureShape }],
    imageSize,
    numImageTokens,
    hasProjector,
    build(context) {
      const { graph, precision } = context;
      const pixels = graph.input(pixelValues, "float32", [images, ...pictureShape]);
      const embedded = options.embed(context, cast(graph, "pixels", pixels, precision.activations));
      const outputShape = [numImageTokens, hiddenSize];
      const unflattened = cast(graph, "projected.cast", embedded, "float32");
      graph.output(reshapeTo(graph, "image_features", unflattened, [images, ...outputShape]));
    },
  };
}
