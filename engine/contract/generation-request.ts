/** The input of `Engine.generate`: text and image references, not processed yet. */
import type { SamplingParams } from "./sampling-params.ts";

export type ChatRole = "system" | "user" | "assistant";

/** An image of a prompt. */
export type ImagePart =
  | {
      readonly type: "image";
      /** `data:`, `https://` or `s3://` reference; null if the image is expected to be cached under its `uuid`. */
      readonly reference: string | null;
      /** The caller's own name for the image content. A cached image is not fetched again. */
      readonly uuid?: string;
    }
  /** Reference to an .npy or safetensors file with the vision encoder's output for an image. */
  | {
      readonly type: "image_embeds";
      readonly reference: string;
      /** For models whose prompts depend on the shape of a picture (Qwen2-VL, Fuyu). */
      readonly grid?: ImageGrid;
    };

/** Pictures in time (1), rows and columns of patches, before any are merged. */
export type ImageGrid = readonly [numTimes: number, numRows: number, numColumns: number];

export type ContentPart = { readonly type: "text"; readonly text: string } | ImagePart;

export interface ChatMessage {
  readonly role: ChatRole;
  readonly content: string | readonly ContentPart[];
}

export type Prompt =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly addGenerationPrompt: boolean;
      /**
       * Whether the tokenizer adds its tokens (usually a beginning token) around the rendered conversation. Default: as
       * transformers does (see `addsSpecialTokens`).
       */
      readonly addSpecialTokens?: boolean;
    }
  /** `images` are in the order of the model's image placeholders in `text`. */
  | {
      readonly kind: "text";
      readonly text: string;
      readonly addSpecialTokens: boolean;
      readonly images?: readonly ImagePart[];
    }
  /**
   * `images` are in the order of the placeholders in `tokenIds`: one image token each, or already as many as each image
   * has features.
   */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[]; readonly images?: readonly ImagePart[] };

export interface GenerationRequest {
  /** Unique among the requests in flight. */
  readonly requestId: string;
  readonly prompt: Prompt;
  readonly samplingParams: SamplingParams;
  /**
   * Sequences generated from the prompt, which is processed once. The seeds of the further sequences follow the
   * request's seed. Default 1. Greedy sampling accepts only 1, since all sequences would be equal.
   */
  readonly numChoices?: number;
  /** Whether the first output of each choice contains the prompt. Default false. */
  readonly includePrompt?: boolean;
  /**
   * Changes to the image processor's options (`mm_processor_kwargs`), as preprocessor_config.json names them, at the
   * top level or below `images_kwargs`. Unknown options are rejected.
   */
  readonly mmProcessorOptions?: Readonly<Record<string, unknown>>;
  /** Owner of the request's image uuids: an equal uuid of another tenant is another image. Default "". */
  readonly tenant?: string;
  /** Requests with different salts do not share cached prompts and images. */
  readonly cacheSalt?: string;
}
