/** Turns a request into the sequences that the engine thread computes. */
import type { ModelInfo } from "../contract/engine.ts";
import { EngineError } from "../contract/errors.ts";
import type { GenerationRequest, PromptFigures } from "../contract/generation-request.ts";
import type { Modality } from "../contract/request-output.ts";
import { createSamplingParams, isGreedy } from "../contract/sampling-params.ts";
import { shown } from "../excerpt.ts";
import type { ProcessedPrompt } from "../input/input-processor.ts";
import { reasoningStartOf } from "../input/reasoning.ts";
import type { LoadedModel } from "../loading/load-model.ts";
import type { RequestTensors } from "../multimodal/held-tensors.ts";
import { numEmbeddingsOf } from "../multimodal/placeholder.ts";
import type { PromptTokens } from "../output/decode-logprobs.ts";
import { RequestOutputs } from "../output/output-processor.ts";
import { randomSeed } from "../random-ids.ts";
import { validateWithProcessors } from "../sampling/custom/processor-loading.ts";
import { withTextTokens } from "../text/added-tokens.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ToEngineThread } from "../thread/messages.ts";

export interface PreparedSequences {
  readonly outputs: RequestOutputs;
  readonly figures: PromptFigures;
  readonly message: Extract<ToEngineThread, { kind: "add" }>;
}

/**
 * Processes the input once, for all sequences of the request.
 *
 * @param sequenceIds The engine thread's ids, one per choice.
 * @param signal Ends the work on the input.
 * @param tensors Counts those of the images; null for a text-only model.
 * @throws EngineError for parameters, prompts and pictures that are invalid.
 */
export async function prepareSequences(
  request: GenerationRequest,
  model: LoadedModel,
  sequenceIds: readonly string[],
  signal: AbortSignal,
  tensors: RequestTensors | null,
): Promise<PreparedSequences> {
  const { inputProcessor, tokenizer } = model;
  const { requestId, task = "generate" } = request;
  const samplingParams = task === "generate" ? request.samplingParams : paramsOfPooling;
  if (sequenceIds.length > 1 && isGreedy(samplingParams)) {
    throw new EngineError(
      "invalid_argument",
      `numChoices must be 1 when using greedy sampling, got ${sequenceIds.length}.`,
      { parameter: "numChoices" },
    );
  }
  const chosenAdapterId = request.adapter === undefined ? null : adapterIdOf(request.adapter, model.modelInfo);
  model.outputConstraints.check(samplingParams);
  if (model.logitsProcessors.length > 0) validateWithProcessors(model.logitsProcessors, samplingParams);
  using begun = await inputProcessor.begin(request, signal);
  const { reasoning } = samplingParams;
  const reasoningStart =
    reasoning === null ? null : reasoningStartOf({ text: begun.text, prompt: request.prompt }, reasoning);
  const { textTokenIds, ...constraints } = await model.outputConstraints.resolve(samplingParams, signal, {
    ...(request.tenant !== undefined && { tenant: request.tenant }),
    reasoningStart,
  });
  const { numOmittedImages, ...prompt } = await inputProcessor.complete(request, begun, signal, tensors);
  const adapterId = chosenAdapterId ?? defaultAdapterId(prompt, model.modelInfo);
  const figures = {
    numPromptTokens: prompt.promptTokenIds.length,
    numImageTokens: numTokensOf(prompt, "image"),
    numVideoTokens: numTokensOf(prompt, "video"),
  };
  const options = {
    requestId,
    task,
    samplingParams,
    vocabulary: withTextTokens(tokenizer, textTokenIds),
    reasoningStart,
    ...figures,
    numOmittedImages,
    prompt: describePrompt(request, prompt, tokenizer),
  };
  const seed = samplingParams.seed ?? randomSeed();
  // The prompt's logprobs are the same for all sequences.
  const withoutPromptLogprobs = { ...samplingParams, promptLogprobs: null };
  const [first, ...siblings] = sequenceIds.map((sequenceId, index) => ({
    requestId: sequenceId,
    seed: followingSeed(seed, index),
    samplingParams: index === 0 ? samplingParams : withoutPromptLogprobs,
  }));
  const { cacheSalt = null, priority = 0 } = request;
  const sequence = { ...first!, cacheSalt, priority, adapterId, ...(task === "token_embed" && { poolsTokens: true }) };
  return {
    outputs: new RequestOutputs(options, sequenceIds.length),
    figures,
    message: { kind: "add", request: { ...prompt, ...constraints, ...sequence }, siblings },
  };
}

/** Nothing is sampled. */
const paramsOfPooling = createSamplingParams({ temperature: 0, maxTokens: 1 });

function numTokensOf({ images }: Pick<ProcessedPrompt, "images">, modality: Modality): number {
  return images.reduce((sum, item) => (item.modality === modality ? sum + numEmbeddingsOf(item) : sum), 0);
}

/** 0: none. */
function defaultAdapterId({ images }: Pick<ProcessedPrompt, "images">, info: ModelInfo): number {
  const { imageAdapter } = info;
  return imageAdapter === undefined || images.length === 0 ? 0 : adapterIdOf(imageAdapter, info);
}

function adapterIdOf(name: string, { adapters = [] }: ModelInfo): number {
  const index = adapters.indexOf(name);
  if (index !== -1) return index + 1;
  const known = adapters.length === 0 ? "none" : adapters.join(", ");
  throw new EngineError("invalid_argument", `There is no adapter ${shown(name)}; this model has ${known}.`, {
    parameter: "adapter",
  });
}

/** Null if the request does not ask for the prompt. */
function describePrompt(
  { prompt, samplingParams, includePrompt = false, truncatePromptTokens }: GenerationRequest,
  { promptTokenIds, images }: Pick<ProcessedPrompt, "promptTokenIds" | "images">,
  tokenizer: Tokenizer,
): PromptTokens | null {
  if (!includePrompt && samplingParams.promptLogprobs === null) return null;
  const text =
    prompt.kind === "text" && truncatePromptTokens === undefined ? prompt.text : tokenizer.decode(promptTokenIds);
  return { text, tokenIds: promptTokenIds, placeholders: images.map(({ placeholder }) => placeholder) };
}

/** The seed of choice `index`: a safe integer, like the first one. */
function followingSeed(seed: number, index: number): number {
  const room = Number.MAX_SAFE_INTEGER - seed;
  return index <= room ? seed + index : Number.MIN_SAFE_INTEGER + (index - room - 1);
}
