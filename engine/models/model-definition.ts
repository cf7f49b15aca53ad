/** What one architecture must say about itself to be served: its configuration read, and its graphs. */
import type { MultiModalInputs, PixelProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { VisionEncoderShape } from "./built-model.ts";
import type { GraphContext } from "./graph-context.ts";

/** The numbers of a decoder that its runner needs; see `DecoderGraph`. */
export interface DecoderDimensions {
  readonly numLayers: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly takesPositions?: boolean;
}

export interface VisionEncoderDefinition extends VisionEncoderShape {
  /** Builds what `VisionEncoderGraph` states. */
  build(context: GraphContext): void;
}

/** A checkpoint's configuration, understood. */
export interface ConfiguredModel {
  readonly decoder: DecoderDimensions;
  /** The checkpoint's own limit on tokens of one sequence. */
  readonly maxPositionEmbeddings: number;
  /** The id that stands for an image embedding in a prompt; null where the model takes no images. */
  readonly imageTokenId: number | null;
  /** Null where the model takes no images. */
  readonly visionEncoder: VisionEncoderDefinition | null;
  /** Builds what `DecoderGraph` states, for sequences of at most `maxModelLen` tokens. */
  buildDecoder(context: GraphContext, maxModelLen: number): void;
}

/** What a checkpoint adds to its architecture where images enter its prompts. */
export interface ProcessorContext {
  /** The image token as the tokenizer spells it. */
  readonly imageToken: string;
  readonly imageTokenId: number;
  readonly visionEncoder: VisionEncoderShape;
  /** preprocessor_config.json as it is, with what the deployment sets of it. */
  readonly preprocessorConfig: ProcessorOptions;
  readonly pixels: PixelProcessor;
  /** The id of a token by its text, special ones included; null where there is no such token. */
  readonly tokenId: (token: string) => number | null;
}

export interface ModelDefinition {
  /** As `architectures[0]` of config.json names it. */
  readonly architecture: string;
  /** How images enter its prompts; null for a text model. */
  readonly images: MultiModalInputs<ProcessorContext> | null;
  /**
   * @throws EngineError `invalid_checkpoint` for fields of a wrong type, `unsupported_model` for values that would
   *   change the maths; both name the field.
   */
  configure(config: unknown): ConfiguredModel;
}
