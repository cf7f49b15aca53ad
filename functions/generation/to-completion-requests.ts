/** Converts the wire fields of text completions to engine requests. */
import type { GenerationRequest, ImagePart, Prompt } from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { InlineImages } from "../settings/images.ts";
import type { EchoOptions } from "./completion-answer.ts";
import { toContentPart } from "./content-parts.ts";
import { splitInlineImages } from "./inline-images.ts";
import {
  cacheOwner,
  checkLogprobs,
  processorOptions,
  structuredOutputField,
  structuredOutputOf,
  tokenOptions,
  toSamplingParams,
  truncation,
} from "./request-options.ts";
import type { RequestDefaults } from "./request-options.ts";
import { DEFAULT_MAX_TOKENS } from "./schemas/completion-request.ts";
import type { CompletionRequest } from "./schemas/completion-request.ts";

/** One request per prompt. Ids are `requestId` followed by the prompt's index. */
export function toCompletionRequests(
  requestId: string,
  fields: CompletionRequest,
  { maxLogprobs, inlineImages, samplingParams: defaults, tenant, priority }: RequestDefaults,
): GenerationRequest[] {
  const logprobs = fields.logprobs ?? null;
  checkLogprobs(logprobs, maxLogprobs, "logprobs");
  checkLogprobs(fields.prompt_logprobs ?? null, maxLogprobs, "prompt_logprobs");
  const { echo, promptOnly } = echoOptions(fields);
  const samplingParams = toSamplingParams(
    fields,
    {
      maxTokens: promptOnly ? 1 : (fields.max_tokens ?? DEFAULT_MAX_TOKENS),
      logprobs,
      promptLogprobs: fields.prompt_logprobs ?? (echo ? logprobs : null),
      structuredOutput: structuredOutputOf(fields),
    },
    defaults,
  );
  const owner = cacheOwner(fields, tenant);
  const parts = (fields.images ?? [])
    .map(toContentPart)
    .filter((part) => part.type === "image" || part.type === "image_embeds");
  return fields.prompt.map((prompt, index) => ({
    requestId: `${requestId}-${index}`,
    prompt: withImages(
      toPrompt(prompt, promptPath(fields, index), inlineImages, fields.add_special_tokens ?? true),
      parts,
    ),
    numChoices: fields.n ?? 1,
    includePrompt: echo || fields.return_token_ids === true,
    ...truncation(fields),
    ...processorOptions(fields),
    tenant: owner.tenant,
    cacheSalt: owner.cacheSalt,
    priority,
    samplingParams,
  }));
}

function toPrompt(
  prompt: string | readonly number[],
  path: string,
  inlineImages: InlineImages,
  addSpecialTokens: boolean,
): Prompt {
  if (typeof prompt !== "string") return { kind: "tokens", tokenIds: prompt };
  const parts = inlineImages !== "off" ? splitInlineImages(prompt, path) : null;
  return parts === null ? { kind: "text", text: prompt, addSpecialTokens } : { kind: "parts", parts, addSpecialTokens };
}

/** Throws HttpError 400 for images in two places, whose order would be unclear. */
function withImages(prompt: Prompt, images: readonly ImagePart[]): Prompt {
  if (images.length === 0 || prompt.kind === "chat") return prompt;
  if (prompt.kind !== "parts") return { ...prompt, images };
  throw new HttpError(400, "invalid_value", "images cannot be combined with pictures inside the prompt.", {
    parameter: "images",
  });
}

function promptPath({ prompt }: CompletionRequest, index: number): string {
  return prompt.length === 1 ? "prompt" : `prompt[${index}]`;
}

export function echoOptions(fields: CompletionRequest): EchoOptions {
  const { echo, logprobs, prompt_logprobs, max_tokens } = fields;
  return {
    echo: echo === true,
    withLogprobs: typeof logprobs === "number",
    withPromptLogprobs: typeof prompt_logprobs === "number",
    promptOnly: max_tokens === 0,
    ...tokenOptions(fields),
  };
}

/** Paths of the request's prompts and images, for errors. */
export function completionRequestPaths(fields: CompletionRequest, inlineImages: InlineImages): RequestPaths {
  const inText = fields.prompt.flatMap((prompt, index) => {
    const path = promptPath(fields, index);
    const parsed = toPrompt(prompt, path, inlineImages, false);
    return parsed.kind === "parts" ? parsed.parts.flatMap(({ type }) => (type === "text" ? [] : [path])) : [];
  });
  const images = [...inText, ...(fields.images ?? []).map((_, index) => `images[${index}]`)];
  return { prompt: "prompt", images, videos: [], documents: [], structuredOutput: structuredOutputField(fields) };
}
