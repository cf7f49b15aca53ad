/** What a caller of `Engine.generate` sends: text and image references, nothing processed yet. */
import type { SamplingParams } from "./sampling-params.ts";

export type ChatRole = "system" | "user" | "assistant";

export type ContentPart =
  | { readonly type: "text"; readonly text: string }
  /** `data:`, `https://` or `s3://` reference. */
  | { readonly type: "image"; readonly reference: string };

export interface ChatMessage {
  readonly role: ChatRole;
  readonly content: string | readonly ContentPart[];
}

export type Prompt =
  | { readonly kind: "chat"; readonly messages: readonly ChatMessage[]; readonly addGenerationPrompt: boolean }
  /** `images`: references in the order of the model's image placeholders in `text`. */
  | {
      readonly kind: "text";
      readonly text: string;
      readonly addSpecialTokens: boolean;
      readonly images?: readonly string[];
    }
  /** `images`: references in the order of the placeholders, one image token each, in `tokenIds`. */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[]; readonly images?: readonly string[] };

export interface GenerationRequest {
  /** Unique among the requests in flight. */
  readonly requestId: string;
  readonly prompt: Prompt;
  readonly samplingParams: SamplingParams;
}
