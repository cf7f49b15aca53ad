/** Generates requests that fill an engine: every sequence at its maximum length, with as many images as fit. */
import type { EngineConfig } from "../contract/config.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import { createSamplingParams } from "../contract/sampling-params.ts";
import type { ModelInspection } from "./inspect-checkpoint.ts";
import { fillerTokenId } from "./worst-image.ts";

/**
 * One request for each sequence that can run at once. Each prompt leaves as many tokens to generate as there are steps
 * needed to compute all prompts, so that no sequence ends before the last one has started. No two prompts share a
 * prefix, and no two images have the same hash.
 */
export function createWorstCaseRequests(
  { maxModelLen, vocabSize, worstImage }: Pick<ModelInspection, "maxModelLen" | "vocabSize" | "worstImage">,
  { maxNumSequences, maxNumBatchedTokens }: Pick<EngineConfig, "maxNumSequences" | "maxNumBatchedTokens">,
): GenerationRequest[] {
  const promptTokensPerStep = Math.max(1, maxNumBatchedTokens - maxNumSequences);
  const numSteps = Math.ceil((maxNumSequences * maxModelLen) / promptTokensPerStep) + 1;
  const numOutputTokens = Math.max(1, Math.min(numSteps, Math.floor(maxModelLen / 2)));
  // Some models add one token at the end of every prompt.
  const numPromptTokens = Math.max(1, maxModelLen - numOutputTokens - 1);
  const numImages =
    worstImage === null ? 0 : Math.min(worstImage.numFitting, Math.floor((numPromptTokens - 1) / worstImage.numTokens));
  const placeholders = worstImage?.placeholderTokenIds ?? [];
  const numFillers = numPromptTokens - numImages * (worstImage?.numTokens ?? 0);
  const firstFiller = fillerTokenId(placeholders);

  return Array.from({ length: maxNumSequences }, (_, index) => {
    const fillers = Array.from({ length: numFillers }, () => firstFiller);
    const ownTokenId = firstFiller + 1 + (index % Math.max(1, vocabSize - firstFiller - 1));
    if (!placeholders.includes(ownTokenId) && ownTokenId < vocabSize) fillers[0] = ownTokenId;
    const tokenIds = [...fillers, ...Array.from({ length: numImages }, () => placeholders).flat()];
    const images = Array.from({ length: numImages }, (_, image): ImagePart => ({
      type: "image",
      reference: worstImage!.reference,
      uuid: `worst-case-${index}-${image}`,
    }));
    return {
      requestId: `worst-case-${index}`,
      prompt: { kind: "tokens", tokenIds, images },
      samplingParams: createSamplingParams({ temperature: 0, maxTokens: numOutputTokens, ignoreEos: true }),
    };
  });
}
