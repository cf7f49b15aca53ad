/** Renders a prompt with its chat template and tokenizes it, before its images are inserted. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { Prompt } from "../contract/generation-request.ts";
import { noMarkers } from "../multimodal/multimodal-processor.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { addsSpecialTokens, renderChat } from "./chat-prompt.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { promptTooLong } from "./prompt-length.ts";
import { renderParts } from "./prompt-parts.ts";
import type { RenderedPrompt } from "./prompt-parts.ts";
import type { OpenedVideos } from "./video-loader.ts";

/** The parts of a model that make tokens of a prompt. */
export interface PromptTokenizing {
  readonly tokenizer: Tokenizer;
  /** Null for a checkpoint without one, which rejects conversations. */
  readonly chatTemplate: ChatTemplate | null;
  /** Null for a text-only model. */
  readonly imageInputs: ImageInputs | null;
  readonly maxModelLen: number;
}

/** A prompt in which every image is still one placeholder or (in token prompts) already has its features. */
export interface TokenizedPrompt {
  readonly tokenIds: readonly number[];
  /** True if image tokens are the only images: the other text is known to contain none. */
  readonly isExact: boolean;
  /** The tokenized text; "" for a prompt of tokens. */
  readonly text: string;
}

/** In model lengths: the tokens of a longer text are not counted to the end before it is rejected. */
const MAX_COUNTED_LENGTHS = 4;

/**
 * @param numImages Images and items of videos.
 * @param videos The texts that stand for videos in conversations.
 * @throws EngineError `invalid_argument`, `prompt_too_long` or `aborted`.
 */
export async function tokenizePrompt(
  prompt: Prompt,
  numImages: number,
  videos: OpenedVideos,
  model: PromptTokenizing,
  signal: AbortSignal,
): Promise<TokenizedPrompt> {
  const processor = model.imageInputs?.processor;
  const { tokenIds, ...rest } = await encode(prompt, videos, model, signal);
  return { tokenIds: processor?.applyTokensOnly?.(tokenIds, numImages) ?? tokenIds, ...rest };
}

async function encode(
  prompt: Prompt,
  videos: OpenedVideos,
  model: PromptTokenizing,
  signal: AbortSignal,
): Promise<TokenizedPrompt> {
  if (prompt.kind === "tokens") return { tokenIds: prompt.tokenIds, isExact: false, text: "" };
  const { tokenizer, imageInputs, maxModelLen } = model;
  const rendered = render(prompt, videos, model);
  const maxTokens = maxModelLen * MAX_COUNTED_LENGTHS;
  const bosToken = tokenizer.namedTokens.bos_token ?? null;
  const isWrapped = (): boolean => addsSpecialTokens(rendered.text, { acceptsImages: imageInputs !== null, bosToken });
  const tokenIds = await tokenizer.encode(rendered.text, {
    addSpecialTokens: prompt.addSpecialTokens ?? isWrapped(),
    literal: rendered.literal,
    maxTokens,
    signal,
  });
  if (tokenIds === null) throw promptTooLong(`more than ${maxTokens}`, maxModelLen);
  return { tokenIds, isExact: prompt.kind !== "text", text: rendered.text };
}

function render(
  prompt: Exclude<Prompt, { readonly kind: "tokens" }>,
  videos: OpenedVideos,
  { chatTemplate, imageInputs }: PromptTokenizing,
): RenderedPrompt {
  const imagePlaceholder = imageInputs?.processor.imagePlaceholder ?? null;
  switch (prompt.kind) {
    case "text":
      return { text: prompt.text, literal: [] };
    case "parts":
      return renderParts(prompt.parts, imagePlaceholder, imageInputs?.processor.markers ?? noMarkers);
    case "chat":
      return renderChat(prompt, {
        template: requireTemplate(chatTemplate),
        imagePlaceholder,
        markers: imageInputs?.processor.markers,
        ...(videos.size > 0 && {
          videos: { placeholder: null, ...imageInputs?.processor.videos, opened: videos },
        }),
        placesImagesInText: imageInputs?.processor.placesImagesInText,
      });
  }
  return prompt satisfies never;
}

function requireTemplate(template: ChatTemplate | null): ChatTemplate {
  if (template !== null) return template;
  throw new EngineError("invalid_argument", "This model has no chat template. Send a prompt instead of messages.", {
    parameter: "prompt.messages",
  });
}

/** The tokenizer as placeholders in text need it. */
export function createPromptText(tokenizer: Tokenizer, signal?: AbortSignal): PromptText {
  return {
    decode: (tokenIds) => tokenizer.decode(tokenIds),
    encode: async (text) => {
      const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false, ...(signal && { signal }) });
      invariant(tokenIds !== null, "an encoding without a limit is complete");
      return tokenIds;
    },
  };
}
