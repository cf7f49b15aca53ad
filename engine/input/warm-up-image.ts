/** A small picture as the vision encoder receives it, so that the first picture of a request is not the first at all. */
import type { ImageFeature } from "../core/engine-request.ts";
import { dummyPicture } from "../multimodal/dummy-inputs.ts";
import { processImages } from "../multimodal/process-items.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { createPromptText } from "./input-processor.ts";
import type { LoadedImageInputs } from "./multimodal-inputs.ts";

/** In pixels; models that need more enlarge the picture. */
const EDGE = 32;

/** No cache sees the picture. Throws the processor's EngineError. */
export async function createWarmUpImage(
  { processor, dummyInputs }: LoadedImageInputs,
  tokenizer: Tokenizer,
  signal: AbortSignal,
): Promise<ImageFeature> {
  const [size] = dummyInputs.build(1, { width: EDGE, height: EDGE }).imageSizes;
  const picture = { bytes: dummyPicture(size!), parameter: "warm-up" };
  const settings = { options: processor.options, promptText: createPromptText(tokenizer), signal };
  const [item] = await processImages(processor, [picture], settings);
  const { full, isEmbed } = item!.promptUpdates[0]!.content;
  return { tensors: item!.tensors, mmHash: "warm-up", placeholder: { offset: 0, length: full.length, isEmbed } };
}
