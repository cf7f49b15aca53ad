/**
 * The contract of multimodal pipelines: the vision part of a model whose decoder is any text model. It follows
 * text-generation-webui's: a pipeline has a name, image markers, a placeholder token, and embeds images.
 */
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import type {
  DecoderDimensions,
  ImageSpelling,
  ProcessorContext,
  VisionEncoderDefinition,
} from "../model-definition.ts";

/** The settings of pipelines: `PIPELINE_PARAMS`, with those of precision and device. */
export type PipelineParams = Readonly<Record<string, unknown>>;

/** Tensors of the vision part. */
export interface PipelineWeights {
  /** A folder with safetensors files as Hugging Face saves them, or one safetensors file. */
  readonly path: string;
  /** Prefixes of the tensors to use; the others are never read. Default: all. */
  readonly prefixes?: readonly string[];
}

export interface Pipeline extends ImageSpelling {
  /** Unique among all pipelines. */
  readonly name: string;
  /** A token of the decoder's vocabulary. It has the place of each embedding in the prompt's token ids. */
  readonly placeholderTokenId: number;
  /** Names of tensors must be unique among all files. */
  readonly weights: readonly PipelineWeights[];
  /** The content of the image processor's preprocessor_config.json. */
  readonly preprocessorConfig: unknown;
  /**
   * How pictures are processed and how many tokens they take. Default: each picture has the size and the number of
   * embeddings that the vision encoder states, and preprocessor_config.json describes its pixels.
   */
  readonly images?: MultiModalInputs<ProcessorContext>;
  /**
   * The graph from pixels to embeddings of the decoder's width. It sees the tensors of `weights` only.
   *
   * @throws EngineError for a decoder that the vision part does not go with.
   */
  visionEncoder(decoder: DecoderDimensions): VisionEncoderDefinition;
}

type Found = Pipeline | null | Promise<Pipeline | null>;

/** A file `pipelines.ts` (or .js) in a folder of its own. It should import its pipelines only when it is asked for one. */
export interface PipelineModule {
  readonly availablePipelines: readonly string[];
  /** Null for an unknown name. */
  getPipeline(name: string, params: PipelineParams): Found;
  /**
   * Null unless the model's name clearly says which pipeline it was trained with.
   *
   * @param modelName The last part of the model's path.
   */
  getPipelineFromModelName(modelName: string, params: PipelineParams): Found;
}
