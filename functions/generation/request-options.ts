/** Converts the wire fields that chat and text completions have in common, apart from sampling. */
import type { GenerationRequest, SamplingParams, StructuredOutput } from "../../engine/index.ts";
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
