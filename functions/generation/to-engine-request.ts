/** Converts wire fields to engine requests. Snake case ends here. */
import { createSamplingParams } from "../../engine/index.ts";
import type { ChatMessage, ContentPart, GenerationRequest, ImagePart, SamplingParams } from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { EchoOptions } from "./completion-answer.ts";
import type { ChatCompletionRequest, ChatMessageFields } from "./schemas/chat-completion-request.ts";
import { DEFAULT_MAX_TOKENS } from "./schemas/completion-request.ts";
import type { CompletionRequest } from "./schemas/completion-request.ts";
import { structuredOutputField, structuredOutputOf } from "./schemas/structured-output-fields.ts";

export interface RequestDefaults {
  readonly maxLogprobs: number;
  /** The checkpoint's defaults for fields that a request leaves open; for `extraArgs`, the service's. */
  readonly samplingParams: Partial<SamplingParams>;
  /** See `AppEnvironment`. */
  readonly tenant: string;
}

/** Throws HttpError or EngineError `invalid_argument` for values out of range. */
export function toChatRequest(
  requestId: string,
  fields: ChatCompletionRequest,
  { maxLogprobs, samplingParams: defaults, tenant }: RequestDefaults,
): GenerationRequest {
  const logprobs = fields.logprobs ? (fields.top_logprobs ?? 0) : null;
  checkLogprobs(logprobs, maxLogprobs, "top_logprobs");
  checkLogprobs(fields.prompt_logprobs ?? null, maxLogprobs, "prompt_logprobs");
  return {
    requestId,
    prompt: {
      kind: "chat",
      messages: fields.messages.map(toChatMessage),
      addGenerationPrompt: fields.add_generation_prompt ?? true,
      ...(typeof fields.add_special_tokens === "boolean" && { addSpecialTokens: fields.add_special_tokens }),
    },
    numChoices: fields.n ?? 1,
    ...processorOptions(fields),
    ...cacheOwner(fields, tenant),
    samplingParams: toSamplingParams(
      fields,
      {
        maxTokens: fields.max_completion_tokens ?? fields.max_tokens,
        logprobs,
        promptLogprobs: fields.prompt_logprobs ?? null,
      },
      defaults,
    ),
  };
}

/** One request per prompt. Ids are `requestId` followed by the prompt's index. */
export function toCompletionRequests(
  requestId: string,
  fields: CompletionRequest,
  { maxLogprobs, samplingParams: defaults, tenant }: RequestDefaults,
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
    },
    defaults,
  );
  const owner = cacheOwner(fields, tenant);
  return fields.prompt.map((prompt, index) => ({
    requestId: `${requestId}-${index}`,
    prompt:
      typeof prompt === "string"
        ? { kind: "text", text: prompt, addSpecialTokens: fields.add_special_tokens ?? true }
        : { kind: "tokens", tokenIds: prompt },
    numChoices: fields.n ?? 1,
    includePrompt: echo,
    ...processorOptions(fields),
    tenant: owner.tenant,
    cacheSalt: owner.cacheSalt,
    samplingParams,
  }));
}

/** Tenants share no cached images: otherwise a fast answer would reveal what another tenant has sent. */
function cacheOwner(
  { cache_salt: salt }: Pick<CompletionRequest, "cache_salt">,
  tenant: string,
): { readonly tenant: string; readonly cacheSalt: string } {
  return { tenant, cacheSalt: JSON.stringify([tenant, salt ?? ""]) };
}

function processorOptions({
  mm_processor_kwargs: options,
}: Pick<CompletionRequest, "mm_processor_kwargs">): Pick<GenerationRequest, "mmProcessorOptions"> {
  return options ? { mmProcessorOptions: options } : {};
}

export function echoOptions({ echo, logprobs, prompt_logprobs, max_tokens }: CompletionRequest): EchoOptions {
  return {
    echo: echo === true,
    withLogprobs: typeof logprobs === "number",
    withPromptLogprobs: typeof prompt_logprobs === "number",
    promptOnly: max_tokens === 0,
  };
}

/** Paths of the request's prompt and images, for errors. */
export function chatRequestPaths(fields: ChatCompletionRequest): RequestPaths {
  const { messages } = fields;
  const images = messages.flatMap(({ content }, message) =>
    typeof content === "object" && content !== null
      ? content.flatMap((part, index) => {
          const field = imageField(toContentPart(part));
          return field === null ? [] : [`messages[${message}].content[${index}].${field}`];
        })
      : [],
  );
  return { prompt: "messages", images, structuredOutput: structuredOutputField(fields) };
}

/** The field of the part that contains the image. */
function imageField({ type }: ContentPart): "image_url" | "image_embeds" | null {
  switch (type) {
    case "text":
      return null;
    case "image":
      return "image_url";
    case "image_embeds":
      return "image_embeds";
  }
}

export function completionRequestPaths(fields: CompletionRequest): RequestPaths {
  return { prompt: "prompt", images: [], structuredOutput: structuredOutputField(fields) };
}

type SamplingFields = Omit<CompletionRequest, "prompt" | "logprobs" | "echo">;

/** Parameters that chat and text completions spell differently. */
interface OwnParams {
  readonly maxTokens: number | null | undefined;
  readonly logprobs: number | null;
  readonly promptLogprobs: number | null;
}

function toSamplingParams(
  fields: SamplingFields,
  { maxTokens, logprobs, promptLogprobs }: OwnParams,
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
    skipSpecialTokens: fields.skip_special_tokens ?? undefined,
    logprobs,
    promptLogprobs,
    structuredOutput: structuredOutputOf(fields),
    extraArgs: { ...defaults.extraArgs, ...fields.vllm_xargs },
  });
}

/** Some clients send 64-bit seeds, but the engine accepts 53 bits. Equal seeds stay equal. */
function toSeed(seed: number | null | undefined): number | undefined {
  if (seed === null || seed === undefined) return undefined;
  return Number.isSafeInteger(seed) ? seed : Number(BigInt.asIntN(53, BigInt(seed)));
}

function toChatMessage({ role, content }: ChatMessageFields): ChatMessage {
  return {
    role: role === "developer" ? "system" : role,
    content: typeof content === "object" && content !== null ? content.map(toContentPart) : (content ?? ""),
  };
}

type PartFields = Exclude<NonNullable<ChatMessageFields["content"]>, string>[number];

function toContentPart(part: PartFields): ContentPart {
  switch (part.type) {
    case "text":
    case "input_text":
    case "output_text":
      return { type: "text", text: part.text };
    case "refusal":
      return { type: "text", text: part.refusal };
    case "image_url":
      return toImagePart(part.image_url?.url, part.uuid);
    case "input_image":
      return toImagePart(part.image_url, part.uuid);
    case "image_embeds":
      return toEmbeddingsPart(part.image_embeds);
  }
}

function toEmbeddingsPart(given: Extract<PartFields, { type: "image_embeds" }>["image_embeds"]): ImagePart {
  if (typeof given === "string") return { type: "image_embeds", reference: embeddingsReference(given) };
  const { image_embeds: file, image_grid_thw: grid } = given;
  const reference = embeddingsReference(file);
  if (!grid) return { type: "image_embeds", reference };
  const [numTimes = 1, numRows = 1, numColumns = 1] = grid;
  return { type: "image_embeds", reference, grid: [numTimes, numRows, numColumns] };
}

function toImagePart(reference: string | null | undefined, uuid: string | null | undefined): ImagePart {
  return { type: "image", reference: reference ?? null, ...(typeof uuid === "string" && { uuid }) };
}

/** Base64 has no colon. */
function embeddingsReference(text: string): string {
  return /^[a-z][a-z\d+.-]*:/i.test(text) ? text : `data:;base64,${text}`;
}

function checkLogprobs(logprobs: number | null, maxLogprobs: number, parameter: string): void {
  if (logprobs === null || logprobs <= maxLogprobs) return;
  const kind = parameter === "prompt_logprobs" ? "prompt" : "sample";
  throw new HttpError(
    400,
    "invalid_value",
    `Requested ${kind} logprobs of ${logprobs}, which is greater than max allowed: ${maxLogprobs}.`,
    { parameter },
  );
}
