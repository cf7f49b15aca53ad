/** From a request as it came to one the engine thread can run: tokens, pixels, and where the two meet. */
import { EngineError, invariant } from "./errors.ts";
import { imageReferences, renderChat } from "./chat-prompt.ts";
import { fetchImage } from "./images/fetch-image.ts";
import { computeMmHash } from "./multimodal/hasher.ts";
import { applyPromptUpdates, countMatches } from "./multimodal/prompt-update.ts";
import { applyPromptUpdatesToText } from "./multimodal/prompt-text-fallback.ts";
import type { ImageLimits } from "./config.ts";
import type { EngineRequest, ImageFeature } from "./engine-request.ts";
import type { GenerationRequest, Prompt } from "./generation-request.ts";
import type { ImageProcessor } from "./images/image-processor.ts";
import type { ImageSource } from "./images/image-source.ts";
import type { MultiModalProcessor, ProcessedImage } from "./multimodal/multimodal-processor.ts";
import type { UpdatedPrompt } from "./multimodal/prompt-update.ts";
import type { ChatTemplate } from "./text/chat-template.ts";
import type { Tokenizer } from "./text/tokenizer.ts";

/** How a model takes images. */
export interface ImageInputs {
  readonly processor: MultiModalProcessor;
  readonly pixels: ImageProcessor;
  readonly sources: readonly ImageSource[];
}

export interface InputProcessorOptions {
  readonly tokenizer: Tokenizer;
  /** Null for a checkpoint without one, which refuses conversations. */
  readonly chatTemplate: ChatTemplate | null;
  /** Null for a text-only model. */
  readonly imageInputs: ImageInputs | null;
  readonly imageLimits: ImageLimits;
  readonly maxModelLen: number;
  readonly vocabSize: number;
  /** Of the built model; part of every image's hash. */
  readonly modelContentHash: string;
}

/** What the engine thread needs beside what the caller decides (id, sampling, seed). */
export type ProcessedPrompt = Pick<EngineRequest, "promptTokenIds" | "images">;

/** An image without its place in the prompt. */
type LoadedImage = ProcessedImage & Pick<ImageFeature, "mmHash">;

/** A longer text is not counted to its end before it is refused. */
const MAX_COUNTED_LENGTHS = 4;

export class InputProcessor {
  readonly #options: InputProcessorOptions;

  constructor(options: InputProcessorOptions) {
    this.#options = options;
  }

  /**
   * Everything that can be refused without fetching an image is refused before one is fetched. Images are fetched and
   * processed concurrently; when one fails the others are cancelled, and nothing of the request is left running when
   * the promise settles. Throws EngineError `invalid_argument`, `prompt_too_long`, `too_many_images`, those of images,
   * or `aborted`.
   */
  async process(request: GenerationRequest, signal: AbortSignal): Promise<ProcessedPrompt> {
    const references = referencesOf(request.prompt);
    this.#checkImages(references, request.prompt);
    const tokenIds = await this.#tokenize(request.prompt, references.length, signal);
    this.#checkTokens(tokenIds, references.length);
    if (references.length === 0) return { promptTokenIds: tokenIds, images: [] };

    const { imageInputs } = this.#options;
    invariant(imageInputs !== null, "images of a text-only model were let through");
    const images = await this.#loadImages(imageInputs, references, signal);
    const updated = applyPromptUpdates(tokenIds, imageInputs.processor.promptUpdates(images));
    this.#checkLength(updated.tokenIds.length);
    return { promptTokenIds: updated.tokenIds, images: withPlaceholders(images, updated) };
  }

  #checkImages(references: readonly string[], prompt: Prompt): void {
    const { imageInputs, imageLimits } = this.#options;
    if (references.length === 0) return;
    const parameter = prompt.kind === "chat" ? "prompt.messages" : "prompt.images";
    if (imageInputs === null) {
      throw new EngineError("invalid_argument", "This model takes no images.", { parameter });
    }
    if (references.length > imageLimits.maxImagesPerPrompt) {
      throw new EngineError(
        "too_many_images",
        `The prompt has ${references.length} images; the limit is ${imageLimits.maxImagesPerPrompt}.`,
        { parameter },
      );
    }
  }

  /** Token ids in which every image is still one placeholder. */
  async #tokenize(prompt: Prompt, numImages: number, signal: AbortSignal): Promise<readonly number[]> {
    const { tokenizer, chatTemplate, imageInputs, maxModelLen } = this.#options;
    if (prompt.kind === "tokens") return this.#spellPlaceholders(prompt.tokenIds, numImages, signal);
    const rendered =
      prompt.kind === "text"
        ? { text: prompt.text, literal: [] }
        : renderChat(prompt.messages, {
            template: requireTemplate(chatTemplate),
            imagePlaceholder: imageInputs?.processor.imagePlaceholder ?? null,
            addGenerationPrompt: prompt.addGenerationPrompt,
          });
    const maxTokens = maxModelLen * MAX_COUNTED_LENGTHS;
    const tokenIds = await tokenizer.encode(rendered.text, {
      addSpecialTokens: prompt.kind === "text" && prompt.addSpecialTokens,
      literal: rendered.literal,
      maxTokens,
      signal,
    });
    if (tokenIds === null) throw tooLong(`more than ${maxTokens}`, maxModelLen);
    return tokenIds;
  }

  /** Token prompts may spell a placeholder with the tokens of its characters: those become the placeholder's own. */
  async #spellPlaceholders(
    tokenIds: readonly number[],
    numImages: number,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    const { tokenizer, imageInputs } = this.#options;
    const placeholder = imageInputs?.processor.imagePlaceholderTokenIds ?? [];
    if (countMatches(tokenIds, placeholder) >= numImages) return tokenIds;
    this.#checkLength(tokenIds.length);
    const update = { kind: "replacement", target: placeholder, content: { full: placeholder, isEmbed: null } } as const;
    const respelled = await applyPromptUpdatesToText(
      tokenIds,
      Array.from({ length: numImages }, () => update),
      {
        decode: (ids) => tokenizer.decode(ids),
        encode: async (text) => (await tokenizer.encode(text, { addSpecialTokens: false, signal })) ?? [],
      },
    );
    return respelled.tokenIds;
  }

  #checkTokens(tokenIds: readonly number[], numImages: number): void {
    const { imageInputs, vocabSize } = this.#options;
    if (tokenIds.length === 0) {
      throw new EngineError("invalid_argument", "The prompt is empty.", { parameter: "prompt" });
    }
    for (const tokenId of tokenIds) {
      if (Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize) continue;
      throw new EngineError(
        "invalid_argument",
        `Token id ${tokenId} is out of the vocabulary, whose size is ${vocabSize}.`,
        { parameter: "prompt" },
      );
    }
    if (imageInputs === null) {
      this.#checkLength(tokenIds.length);
      return;
    }
    const { imagePlaceholder, imagePlaceholderTokenIds, minImageTokens } = imageInputs.processor;
    this.#checkLength(tokenIds.length + numImages * (minImageTokens - imagePlaceholderTokenIds.length));
    const numPlaceholders = countMatches(tokenIds, imagePlaceholderTokenIds);
    if (numPlaceholders === numImages) return;
    throw new EngineError(
      "invalid_argument",
      `The prompt has ${numPlaceholders} image placeholders (${imagePlaceholder}) for ${numImages} images.`,
      { parameter: "prompt" },
    );
  }

  #checkLength(numTokens: number): void {
    const { maxModelLen } = this.#options;
    // One position is for the output.
    if (numTokens >= maxModelLen) throw tooLong(String(numTokens), maxModelLen);
  }

  /** In the order of the references. The first failure cancels the rest, which have ended when this rejects. */
  async #loadImages(
    imageInputs: ImageInputs,
    references: readonly string[],
    signal: AbortSignal,
  ): Promise<readonly LoadedImage[]> {
    const failed = new AbortController();
    const either = AbortSignal.any([signal, failed.signal]);
    const loading = references.map(async (reference, index) => {
      try {
        return await this.#loadImage(imageInputs, reference, either);
      } catch (error) {
        failed.abort(namingImage(error, index));
        throw error;
      }
    });
    const settled = await Promise.allSettled(loading);
    if (signal.aborted) throw new EngineError("aborted", "The request was aborted.", { cause: signal.reason });
    if (failed.signal.aborted) throw failed.signal.reason;
    return settled.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  }

  async #loadImage(imageInputs: ImageInputs, reference: string, signal: AbortSignal): Promise<LoadedImage> {
    const { imageLimits, modelContentHash } = this.#options;
    const encodedBytes = await fetchImage(imageInputs.sources, reference, { signal, limits: imageLimits });
    const [processed, mmHash] = await Promise.all([
      imageInputs.pixels.process(encodedBytes, signal),
      computeMmHash({
        modality: "image",
        modelContentHash,
        processorOptions: imageInputs.processor.options,
        encodedBytes,
      }),
    ]);
    return { ...processed, mmHash };
  }
}

function referencesOf(prompt: Prompt): readonly string[] {
  return prompt.kind === "chat" ? imageReferences(prompt.messages) : (prompt.images ?? []);
}

function requireTemplate(template: ChatTemplate | null): ChatTemplate {
  if (template !== null) return template;
  throw new EngineError("invalid_argument", "This model has no chat template; send a prompt instead of messages.", {
    parameter: "prompt.messages",
  });
}

/** The same error, with `prompt.images[index]` as its parameter: the index counts all images of the prompt. */
function namingImage(error: unknown, index: number): unknown {
  if (!(error instanceof EngineError)) return error;
  return new EngineError(error.code, error.message, { cause: error, parameter: `prompt.images[${index}]` });
}

function withPlaceholders(images: readonly LoadedImage[], updated: UpdatedPrompt): ImageFeature[] {
  const features = images.map((image, item) => {
    const placeholder = updated.placeholders[item];
    invariant(placeholder !== null, "placeholders were counted before");
    return { ...image, placeholder };
  });
  return features.sort((left, right) => left.placeholder.offset - right.placeholder.offset);
}

function tooLong(numTokens: string, maxModelLen: number): EngineError {
  return new EngineError(
    "prompt_too_long",
    `The prompt has ${numTokens} tokens; the model's length of ${maxModelLen} leaves room for ${maxModelLen - 1} and one of output.`,
    { parameter: "prompt" },
  );
}
