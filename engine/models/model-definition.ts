/** The contract of a served architecture: parsing its configuration and building its graphs. */
import type {
  ImageMarkers,
  MultiModalInputs,
  PixelProcessor,
  ProcessorOptions,
} from "../multimodal/multimodal-processor.ts";
import type { KvHeads, PatchOrder, RecurrentShape, VisionEncoderShape } from "./built-model.ts";
import type { ExpertsShape } from "./decoder-graph/experts.ts";
import type { GraphContext } from "./graph-context.ts";

/** Sizes of a decoder that its runner needs; see `DecoderGraph`. */
export interface DecoderDimensions {
  /** Layers with keys and values. */
  readonly numLayers: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly hiddenSize: number;
  readonly imageWidth: number;
  readonly vocabSize: number;
  readonly takesPositions?: boolean;
  readonly keepsImagesWhole?: boolean;
  readonly joinsImages?: boolean;
  /** Left out if every layer has keys and values. */
  readonly recurrent?: RecurrentShape;
  /** Left out if no layer has experts. */
  readonly experts?: ExpertsShape;
  readonly kvHeads?: readonly KvHeads[];
  readonly kvReaders?: readonly number[];
}

export interface VisionEncoderDefinition extends VisionEncoderShape {
  /** Whether the graph builds its projector in a `projectorContext`. Default false. */
  readonly hasProjector?: boolean;
  /** Left out unless `pixel_values` are the patches of one picture, each value of the picture once. */
  readonly patchOrder?: PatchOrder;
  /** Options of the image processor that only exports have, over `imageOptions`. */
  readonly exportImageOptions?: VisionEncoderShape["imageOptions"];
  /** Why exports of this encoder cannot be served. Left out if they can. */
  readonly refusesExports?: string;
  /**
   * By name: the sizes of `inputs` that are not known in advance, at most, for a picture of so many embeddings. If left
   * out, each is its number of tiles.
   */
  largestSizes?(this: void, numEmbeddings: number): ReadonlyMap<string, number>;
  /** Builds the graph described by `VisionEncoderGraph`. */
  build(context: GraphContext): void;
}

/** A parsed configuration of a checkpoint. */
export interface ConfiguredModel {
  readonly decoder: DecoderDimensions;
  /** The checkpoint's own limit on tokens per sequence. */
  readonly maxPositionEmbeddings: number;
  /** Token id of an image embedding in a prompt; null if the model does not accept images. */
  readonly imageTokenId: number | null;
  /** Null if the model does not accept images. */
  readonly visionEncoder: VisionEncoderDefinition | null;
  /**
   * Builds the graph described by `DecoderGraph`, for sequences of at most `maxModelLen` tokens.
   *
   * @param acceptsImages Whether a pipeline adds images to a text model. Models with images of their own ignore it.
   */
  buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages?: boolean): void;
}

/** The checkpoint's data for images in prompts. */
export interface ProcessorContext {
  /** The image token in the tokenizer's spelling. */
  readonly imageToken: string;
  readonly imageTokenId: number;
  readonly visionEncoder: VisionEncoderShape;
  /** preprocessor_config.json with the options of config.json and the deployment's changes. */
  readonly preprocessorConfig: ProcessorOptions;
  /**
   * The options of the checkpoint's video processor; null if it has no file of its own, and those of
   * `preprocessorConfig` are for both.
   */
  readonly videoPreprocessorConfig?: ProcessorOptions | null;
  /** The fields of processor_config.json itself. Default: none. */
  readonly processorConfig?: ProcessorOptions;
  /** The tokens that tokenizer_config.json names, such as `bos_token`. Default: none. */
  readonly namedTokens?: Readonly<Record<string, string>>;
  readonly pixels: PixelProcessor;
  /** The token of a whole image in a prompt whose images are not inserted yet. */
  readonly placeholderTokenId: number;
  /** The id of a token by its text, special tokens included; null if there is none. */
  readonly tokenId: (token: string) => number | null;
}

/** The part of it that videos depend on. */
export type VideoContext = Pick<ProcessorContext, "imageToken" | "preprocessorConfig" | "videoPreprocessorConfig">;

/** How prompts of a text model spell images, if a pipeline gives it a vision part. */
export interface ImageSpelling extends ImageMarkers {
  /** Text of one image, in prompts that bring their images beside them. */
  readonly imagePlaceholder: string;
}

export interface ModelDefinition {
  /** As in `architectures[0]` of config.json. */
  readonly architecture: string;
  /**
   * `vision_config.model_type` of its checkpoints, if other definitions have the same architecture. One of them leaves
   * this out and takes all other checkpoints.
   */
  readonly towerType?: string;
  /** How images enter its prompts; null for a text model. */
  readonly images: MultiModalInputs<ProcessorContext> | null;
  /** Left out if the tokenizer has the image token, and the chat template places images. */
  readonly imageSpelling?: ImageSpelling;
  /**
   * Text of a whole image in prompts and in what chat templates write, if it is not the image token. It is added to the
   * tokenizer if that lacks it.
   */
  readonly imagePlaceholder?: string;
  /**
   * Whether messages are texts to the chat template, in which each picture stands between its markers, even if the
   * template would take parts too. Placeholders that a message's text already has are its pictures. Default false.
   */
  readonly spellsImages?: boolean;
  /** Jinja template for checkpoints without one, if those on the hub have none. */
  readonly chatTemplate?: string;
  /**
   * @throws EngineError `invalid_checkpoint` for fields of a wrong type, `unsupported_model` for values that would
   * change the computation; both name the field.
   */
  configure(config: unknown): ConfiguredModel;
}
