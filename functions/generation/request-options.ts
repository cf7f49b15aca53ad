/** Converts the wire fields that chat and text completions have in common. */
import { createSamplingParams } from "../../engine/index.ts";
import type {
  GenerationRequest,
  ReasoningParams,
  RepetitionDetection,
  SamplingParams,
  StructuredOutput,
  TaskName,
} from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { InlineImages } from "../settings/images.ts";
import type { TokenOptions } from "./answer-options.ts";
import type { ModelFormats } from "./parsed-output/model-formats.ts";
import type { CompletionRequest } from "./schemas/completion-request.ts";
import type { SamplingDefaults } from "./video-sampling.ts";

export interface RequestDefaults extends SamplingDefaults {
  readonly maxLogprobs: number;
  readonly inlineImages: InlineImages;
  /** The checkpoint's defaults for fields that a request leaves open; for `extraArgs`, the service's. */
  readonly samplingParams: Partial<SamplingParams>;
  /** See `AppEnvironment`. */
  readonly tenant: string;
  readonly formats: ModelFormats;
  readonly priority: number;
  /** See `ModelInfo`; null while the model is not known. */
  readonly task: TaskName | null;
  /** See `ModelInfo`; null also while the model is not known. */
  readonly embeddingSize: number | null;
}

/** Tenants share no cached images: otherwise a fast answer would reveal what another tenant has sent. */
export function cacheOwner(
  { cache_salt: salt }: Pick<CompletionRequest, "cache_salt">,
  tenant: string,
): { readonly tenant: string; readonly cacheSalt: string } {
  return { tenant, cacheSalt: JSON.stringify([tenant, salt ?? ""]) };
}

export function truncation({
  truncate_prompt_tokens: truncatePromptTokens,
  truncation_side: truncationSide,
}: Pick<CompletionRequest, "truncate_prompt_tokens" | "truncation_side">): Pick<
  GenerationRequest,
  "truncatePromptTokens" | "truncationSide"
> {
  return {
    ...(typeof truncatePromptTokens === "number" && { truncatePromptTokens }),
    ...(truncationSide && { truncationSide }),
  };
}

export function processorOptions({
  mm_processor_kwargs: options,
}: Pick<CompletionRequest, "mm_processor_kwargs">): Pick<GenerationRequest, "mmProcessorOptions"> {
  return options ? { mmProcessorOptions: options } : {};
}

export function tokenOptions(
  fields: Pick<CompletionRequest, "return_token_ids" | "return_tokens_as_token_ids">,
): TokenOptions {
  return {
    returnsTokenIds: fields.return_token_ids === true,
    tokensAsIds: fields.return_tokens_as_token_ids === true,
  };
}

interface StructuredFields {
  readonly response_format?: StructuredOutput | null | undefined;
  readonly structured_outputs?: StructuredOutput | null | undefined;
}

/** The given form, or null for free text. */
export function structuredOutputOf(fields: StructuredFields): StructuredOutput | null {
  return fields.structured_outputs ?? fields.response_format ?? null;
}

/** The name of the field for errors of a structured output. */
export function structuredOutputField(fields: StructuredFields): "response_format" | "structured_outputs" {
  return fields.structured_outputs ? "structured_outputs" : "response_format";
}

type SamplingFields = Omit<CompletionRequest, "prompt" | "images" | "logprobs" | "echo">;

/** Parameters that chat and text completions spell differently. */
interface OwnParams {
  readonly maxTokens: number | null | undefined;
  readonly logprobs: number | null;
  readonly promptLogprobs: number | null;
  readonly structuredOutput: StructuredOutput | null;
  readonly keptSpecialTokens?: readonly string[];
  readonly reasoning?: ReasoningParams | null;
}

export function toSamplingParams(
  fields: SamplingFields,
  { maxTokens, logprobs, promptLogprobs, structuredOutput, keptSpecialTokens, reasoning }: OwnParams,
  defaults: Partial<SamplingParams>,
): SamplingParams {
  return createSamplingParams({
    temperature: fields.temperature ?? defaults.temperature,
    topP: fields.top_p ?? defaults.topP,
    topK: fields.top_k ?? defaults.topK,
    minP: fields.min_p ?? defaults.minP,
    presencePenalty: fields.presence_penalty ?? defaults.presencePenalty,
    frequencyPenalty: fields.frequency_penalty ?? defaults.frequencyPenalty,
    repetitionPenalty: fields.repetition_penalty ?? defaults.repetitionPenalty,
    logitBias: fields.logit_bias ?? undefined,
    allowedTokenIds: fields.allowed_token_ids ?? undefined,
    badWords: fields.bad_words ?? undefined,
    seed: toSeed(fields.seed) ?? defaults.seed,
    maxTokens: maxTokens ?? defaults.maxTokens,
    minTokens: fields.min_tokens ?? defaults.minTokens,
    stop: fields.stop ?? defaults.stop,
    stopTokenIds: fields.stop_token_ids ?? defaults.stopTokenIds,
    includeStopStringInOutput: fields.include_stop_str_in_output ?? undefined,
    ignoreEos: fields.ignore_eos ?? defaults.ignoreEos,
    repetitionDetection: toRepetitionDetection(fields.repetition_detection),
    skipSpecialTokens: fields.skip_special_tokens ?? undefined,
    logprobs,
    promptLogprobs,
    structuredOutput,
    keptSpecialTokens,
    reasoning,
    extraArgs: { ...defaults.extraArgs, ...fields.vllm_xargs },
  });
}

/** Fields left out are 0, as in vLLM. */
function toRepetitionDetection(fields: SamplingFields["repetition_detection"]): RepetitionDetection | null {
  if (!fields) return null;
  return {
    maxPatternSize: fields.max_pattern_size ?? 0,
    minPatternSize: fields.min_pattern_size ?? 0,
    minCount: fields.min_count ?? 0,
  };
}

/** Some clients send 64-bit seeds, but the engine accepts 53 bits, as many as parsing keeps. Equal seeds stay equal. */
function toSeed(seed: number | null | undefined): number | undefined {
  if (seed === null || seed === undefined) return undefined;
  if (Number.isSafeInteger(seed)) return seed;
  const bits = BigInt(seed);
  // The first bits replace the last ones, which a number of this size does not have.
  return Number(BigInt.asIntN(53, bits ^ (bits >> 53n)));
}

/** Throws HttpError 400 that names the parameter. `maxLogprobs` is the limit of the settings. */
export function checkLogprobs(logprobs: number | null, maxLogprobs: number, parameter: string): void {
  if (logprobs === null || logprobs <= maxLogprobs) return;
  const kind = parameter === "prompt_logprobs" ? "prompt" : "sample";
  throw new HttpError(
    400,
    "invalid_value",
    `Requested ${kind} logprobs of ${logprobs}, which is greater than max allowed: ${maxLogprobs}.`,
    { parameter },
  );
}
