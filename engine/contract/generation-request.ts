/** What a caller of `Engine.generate` sends: text and image references, nothing processed yet. */
import type { SamplingParams } from "./sampling-params.ts";

export type ChatRole = "system" | "user" | "assistant";

/** An image of a prompt. */
export type ImagePart =
  | {
      readonly type: "image";
      /** `data:`, `https://` or `s3://` reference; null where its `uuid` is expected to be cached. */
      readonly reference: string | null;
      /** The caller's own name for the picture, which stands for its content: one that is cached is not fetched. */
      readonly uuid?: string;
    }
  /** Reference to an .npy or safetensors file of what the vision encoder would make of an image. */
  | { readonly type: "image_embeds"; readonly reference: string };

export type ContentPart = { readonly type: "text"; readonly text: string } | ImagePart;

export interface ChatMessage {
  readonly role: ChatRole;
  readonly content: string | readonly ContentPart[];
}

export type Prompt =
  | { readonly kind: "chat"; readonly messages: readonly ChatMessage[]; readonly addGenerationPrompt: boolean }
  /** `images` in the order of the model's image placeholders in `text`. */
  | {
      readonly kind: "text";
      readonly text: string;
      readonly addSpecialTokens: boolean;
      readonly images?: readonly ImagePart[];
    }
  /**
   * `images` in the order of the placeholders in `tokenIds`: one image token each, or already as many as each image has
   * features.
   */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[]; readonly images?: readonly ImagePart[] };

export interface GenerationRequest {
  /** Unique among the requests in flight. */
  readonly requestId: string;
  readonly prompt: Prompt;
  readonly samplingParams: SamplingParams;
  /**
   * Sequences generated from the prompt, which is processed once. The seeds of those after the first follow the
   * request's. Default 1; greedy sampling, which would give one text several times, takes no other.
   */
  readonly numChoices?: number;
  /** Whether the first output of each choice carries the prompt. Default false. */
  readonly includePrompt?: boolean;
  /**
   * Changes to the image processor's options (`mm_processor_kwargs`), as preprocessor_config.json names them, flat or
   * below `images_kwargs`. Those that the processor does not know are refused.
   */
  readonly mmProcessorOptions?: Readonly<Record<string, unknown>>;
  /** Whom the request's image uuids belong to: another tenant's equal uuid is another image. Default "". */
  readonly tenant?: string;
  /** Requests of different salts share nothing that was cached of their prompts and images. */
  readonly cacheSalt?: string;
}
