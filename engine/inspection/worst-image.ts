/** Finds the picture that needs the most resources, by processing one with the model's processor. */
import type { ImagePart } from "../contract/generation-request.ts";
import { InputProcessor } from "../input/input-processor.ts";
import type { InputProcessorOptions, ProcessedPrompt } from "../input/input-processor.ts";
import type { LoadedImageInputs } from "../input/multimodal-inputs.ts";
import { dummyPicture } from "../multimodal/dummy-inputs.ts";
import { numEmbeddingsIn } from "../multimodal/placeholder.ts";
import { allowedLimit } from "../multimodal/processing-info.ts";
import type { ImageSize } from "../multimodal/processing-info.ts";

export interface WorstImage {
  readonly size: ImageSize;
  /** Origin of `size`: the model's worst case, or a smaller size from the settings. */
  readonly boundedBy: "model" | "settings";
  /** As a `data:` reference. */
  readonly reference: string;
  /** Tokens of an image in a token prompt; empty if images have no placeholder there. */
  readonly placeholderTokenIds: readonly number[];
  /** Positions in a prompt, including row ends and similar tokens. */
  readonly numTokens: number;
  /** Positions that the vision encoder fills. */
  readonly numEmbeddings: number;
  /** Bytes of the tensors that the processor makes for the vision encoder. */
  readonly numBytes: number;
  /** Maximum of any image, for which caches reserve room. */
  readonly maxEmbeddings: number;
  /** Maximum number of images per prompt, by settings and model. */
  readonly maxPerPrompt: number;
  /** Number of such images that fit into one sequence. */
  readonly numFitting: number;
}

export async function measureWorstImage(
  imageInputs: LoadedImageInputs,
  options: Pick<InputProcessorOptions, "tokenizer" | "vocabSize" | "maxModelLen" | "imageLimits">,
  signal: AbortSignal,
): Promise<WorstImage> {
  const { info, dummyInputs, processor } = imageInputs;
  const placeholderTokenIds = processor.imagePlaceholderTokenIds;
  const { maxImagesPerPrompt, largestExpectedImage } = options.imageLimits;
  const [size] = dummyInputs.build(1, largestExpectedImage).imageSizes;
  const [largest] = dummyInputs.build(1).imageSizes;
  const isLargest = size.width === largest.width && size.height === largest.height;
  const reference = `data:image/png;base64,${Buffer.from(dummyPicture(size)).toString("base64")}`;
  const inputProcessor = new InputProcessor({
    ...options,
    maxModelLen: Number.MAX_SAFE_INTEGER,
    chatTemplate: null,
    imageInputs,
    imageLimits: { ...options.imageLimits, maxImagesPerPrompt: 1 },
  });
  const process = (images: readonly ImagePart[]): Promise<ProcessedPrompt> => {
    const tokenIds = [fillerTokenId(placeholderTokenIds), ...(images.length > 0 ? placeholderTokenIds : [])];
    const prompt = { kind: "tokens", tokenIds, images } as const;
    return inputProcessor.process({ prompt }, signal);
  };
  const without = await process([]);
  const withImage = await process([{ type: "image", reference }]);
  const numTokens = withImage.promptTokenIds.length - without.promptTokenIds.length;
  const [image] = withImage.images;
  const maxPerPrompt = allowedLimit(info, "image", maxImagesPerPrompt);
  // One position is for the output.
  const numFree = options.maxModelLen - 1 - without.promptTokenIds.length;
  return {
    size,
    boundedBy: isLargest ? "model" : "settings",
    reference,
    placeholderTokenIds,
    numTokens,
    numEmbeddings: numEmbeddingsIn(image.placeholder),
    numBytes: [...image.tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0),
    maxEmbeddings: info.maxTokensPerItem,
    maxPerPrompt,
    numFitting: Math.min(maxPerPrompt, Math.max(0, Math.floor(numFree / numTokens))),
  };
}

/** Any token that is not a placeholder. */
export function fillerTokenId(placeholderTokenIds: readonly number[]): number {
  let tokenId = 1;
  while (placeholderTokenIds.includes(tokenId)) tokenId++;
  return tokenId;
}
