/** What a model with images needs for the prompts that have some. */
import type { MultiModalProcessor } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { DocumentLoader } from "./document-loader.ts";
import type { ItemLoader } from "./item-loader.ts";
import type { VideoLoader } from "./video-loader.ts";

/** A model's image inputs. */
export interface ImageInputs {
  /** Token of one embedding of an image. The placeholder of a whole image may be another token. */
  readonly imageTokenId: number;
  readonly info: ProcessingInfo;
  readonly processor: MultiModalProcessor;
  readonly loader: ItemLoader;
  readonly videos: VideoLoader;
  readonly documents: DocumentLoader;
  /** Whether requests may contain embeddings. */
  readonly enableMmEmbeds: boolean;
}
