/** Converts wire fields to engine requests. Snake case ends here. */
import { createSamplingParams } from "../../engine/index.ts";
import type {
  ChatMessage,
  ChatPromptInput,
  ContentPart,
  GenerationRequest,
  ImagePart,
  VideoPart,
  ReasoningParams,
  RepetitionDetection,
  SamplingParams,
  StructuredOutput,
  ToolDefinition,
} from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { InlineImages } from "../settings/images.ts";
import type { TokenOptions } from "./answer-options.ts";
import { documentPagesOf } from "./document-pages.ts";
import { splitInlineImages } from "./inline-images.ts";
import type { ModelFormats } from "./parsed-output/model-formats.ts";
import type { OutputParsing } from "./parsed-output/output-parser.ts";
import { planTools, UnenforceableTool } from "./parsed-output/tool-plan.ts";
import type { ToolPlan } from "./parsed-output/tool-plan.ts";
import { toReference } from "./references.ts";
import type { ChatCompletionRequest, ChatMessageFields } from "./schemas/chat-completion-request.ts";
import type { CompletionRequest } from "./schemas/completion-request.ts";
import { documentField, documentReference } from "./schemas/document-parts.ts";
import { imageField, imageReference } from "./schemas/image-parts.ts";
import { callableTools, requiresCall } from "./schemas/tool-fields.ts";
import { imageProcessorOptions, videoSamplingOf } from "./video-sampling.ts";
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
}

/** Throws HttpError or EngineError `invalid_argument` for values out of range. */
export function toChatRequest(
  requestId: string,
  fields: ChatCompletionRequest,
  requestDefaults: RequestDefaults,
): GenerationRequest {
  const { maxLogprobs, inlineImages, samplingParams: defaults, tenant, formats, priority } = requestDefaults;
  const plan = planToolsOf(fields, formats);
  const logprobs = fields.logprobs ? (fields.top_logprobs ?? 0) : null;
  checkLogprobs(logprobs, maxLogprobs, "top_logprobs");
  checkLogprobs(fields.prompt_logprobs ?? null, maxLogprobs, "prompt_logprobs");
  return {
    requestId,
    prompt: {
      kind: "chat",
      messages: fields.messages.map((message, index) => toChatMessage(message, index, inlineImages)),
      addGenerationPrompt: fields.add_generation_prompt ?? fields.continue_final_message !== true,
      ...(fields.continue_final_message === true && { continueFinalMessage: true }),
      ...(typeof fields.add_special_tokens === "boolean" && { addSpecialTokens: fields.add_special_tokens }),
      ...toolsOfPrompt(fields),
      ...templateArguments(fields),
    },
    numChoices: fields.n ?? 1,
    ...(fields.return_token_ids === true && { includePrompt: true }),
    ...truncation(fields),
    ...processorOptions({
      mm_processor_kwargs: fields.mm_processor_kwargs && imageProcessorOptions(fields.mm_processor_kwargs),
    }),
    ...videoSamplingOf(fields, requestDefaults),
    ...documentPagesOf(fields),
    ...cacheOwner(fields, tenant),
    priority,
    samplingParams: toSamplingParams(
      fields,
      {
        maxTokens: fields.max_completion_tokens ?? fields.max_tokens,
        logprobs,
        promptLogprobs: fields.prompt_logprobs ?? null,
        structuredOutput: plan?.structuredOutput ?? structuredOutputOf(fields),
        keptSpecialTokens: plan?.parsing.format.specialTokens ?? [],
        reasoning: reasoningOf(fields, formats),
      },
      defaults,
    ),
  };
}

function hasTools({ tools }: ChatCompletionRequest): boolean {
  return Array.isArray(tools) && tools.length > 0;
}

/** How the text of the answer is parsed. Throws like `toChatRequest`. */
export function chatParsing(fields: ChatCompletionRequest, formats: ModelFormats): OutputParsing {
  return {
    toolCalls: planToolsOf(fields, formats)?.parsing ?? null,
    reasoning: formats.reasoning,
    includesReasoning: fields.include_reasoning ?? true,
  };
}

function planToolsOf(fields: ChatCompletionRequest, { toolCalls: format }: ModelFormats): ToolPlan | null {
  if (!hasTools(fields)) return null;
  try {
    return planTools(
      {
        ...callableTools(fields),
        isParallel: fields.parallel_tool_calls ?? true,
        answerForm: structuredOutputOf(fields),
        schemaField: (tool) => toolField(fields, tool, "parameters"),
      },
      format,
    );
  } catch (error) {
    if (!(error instanceof UnenforceableTool)) throw error;
    const parameter = toolField(fields, error.tool, "strict");
    throw new HttpError(
      400,
      "invalid_value",
      `${parameter} ${error.message}. Leave it out, or send tool_choice: required.`,
      { parameter, cause: error },
    );
  }
}

function toolField({ tools }: ChatCompletionRequest, tool: ToolDefinition, field: "parameters" | "strict"): string {
  return `tools[${tools?.indexOf(tool) ?? 0}].function.${field}`;
}

function reasoningOf(
  { thinking_token_budget: budget }: ChatCompletionRequest,
  { reasoning }: ModelFormats,
): ReasoningParams | null {
  const tokenBudget = budget === -1 ? null : (budget ?? null);
  if (reasoning !== null) {
    const { start, end, startsInside } = reasoning;
    return { start, end, startsInside, tokenBudget };
  }
  if (tokenBudget === null) return null;
  throw new HttpError(
    400,
    "invalid_value",
    "thinking_token_budget cannot be applied: this model does not mark its thinking. REASONING_PARSER sets its markers.",
    { parameter: "thinking_token_budget" },
  );
}

/** With `tool_choice: none`, the model does not see the tools. */
function toolsOfPrompt(fields: ChatCompletionRequest): Pick<ChatPromptInput, "tools"> {
  if (!hasTools(fields)) return {};
  const { tools, choice } = callableTools(fields);
  return tools.length === 0 || choice === "none" ? {} : { tools };
}

/** The effort is a variable of some templates; others know only whether to think. */
function templateArguments({
  chat_template_kwargs: given,
  reasoning_effort: effort,
}: ChatCompletionRequest): Pick<ChatPromptInput, "templateArguments"> {
  if (!effort) return given ? { templateArguments: given } : {};
  return {
    templateArguments: { reasoning_effort: effort, ...(effort === "none" && { enable_thinking: false }), ...given },
  };
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

/** Paths of the request's prompt, images, videos and documents, for errors. */
export function chatRequestPaths(fields: ChatCompletionRequest, inlineImages: InlineImages): RequestPaths {
  const parts = fields.messages.flatMap((message, index) => partsOf(message, index, inlineImages));
  const pathsOf = (...types: ContentPart["type"][]): string[] =>
    parts.flatMap(({ part, path }) => (types.includes(part.type) ? [path] : []));
  const isFree = structuredOutputOf(fields) === null;
  const isToolForm = hasTools(fields) && (isFree || requiresCall(fields.tool_choice));
  return {
    prompt: "messages",
    images: pathsOf("image", "image_embeds"),
    videos: pathsOf("video"),
    documents: pathsOf("document"),
    structuredOutput: isToolForm ? "tools" : structuredOutputField(fields),
    // It goes before `max_tokens`, as in `toChatRequest`.
    ...(typeof fields.max_completion_tokens === "number" && { names: { maxTokens: "max_completion_tokens" } }),
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

function toChatMessage(message: ChatMessageFields, index: number, inlineImages: InlineImages): ChatMessage {
  const { role, name } = message;
  const parts = partsOf(message, index, inlineImages).map(({ part }) => part);
  const [first, ...others] = parts;
  const isPlain = !Array.isArray(message.content) && first?.type === "text" && others.length === 0;
  return {
    role: role === "developer" ? "system" : role,
    content: isPlain ? first.text : parts,
    ...(typeof name === "string" && { name }),
    ...(message.role === "assistant" && toAssistantTurn(message)),
    ...(message.role === "tool" && typeof message.tool_call_id === "string" && { toolCallId: message.tool_call_id }),
  };
}

function toAssistantTurn(
  message: Extract<ChatMessageFields, { role: "assistant" }>,
): Pick<ChatMessage, "toolCalls" | "reasoning"> {
  const calls = message.tool_calls ?? [];
  const reasoning = message.reasoning_content ?? message.reasoning;
  return {
    ...(calls.length > 0 && {
      toolCalls: calls.map(({ id, function: { name, arguments: given } }) => ({ id, name, arguments: given ?? {} })),
    }),
    ...(typeof reasoning === "string" && { reasoning }),
  };
}

interface PlacedPart {
  readonly part: ContentPart;
  /** The field of the body that contains the part. */
  readonly path: string;
}

/** The parts of a message. A text with pictures in it gives several parts of one path. */
function partsOf({ content }: ChatMessageFields, message: number, inlineImages: InlineImages): PlacedPart[] {
  const path = `messages[${message}].content`;
  const place = (part: ContentPart, partPath: string): PlacedPart[] => {
    if (part.type !== "text" || inlineImages !== "all") return [{ part, path: partPath }];
    const split = splitInlineImages(part.text, partPath) ?? [part];
    return split.map((inText) => ({ part: inText, path: partPath }));
  };
  if (typeof content !== "object" || content === null) return place({ type: "text", text: content ?? "" }, path);
  return content.flatMap((part, index) => place(toContentPart(part), `${path}[${index}].${contentField(part)}`));
}

type PartFields = Exclude<NonNullable<ChatMessageFields["content"]>, string>[number];

/** The field of a part that contains its content. */
export function contentField(part: PartFields): string {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "refusal":
      return "text";
    case "input_image":
      return imageField(part);
    case "input_video":
      return "video_url";
    case "input_file":
      return documentField(part);
    case "text":
    case "image_url":
    case "image_embeds":
    case "video_url":
    case "video":
    case "file":
    case "document_url":
      return part.type;
  }
}

export function toContentPart(part: PartFields): ContentPart {
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
      return toImagePart(imageReference(part), part.uuid);
    case "image_embeds":
      return toEmbeddingsPart(part.image_embeds);
    case "video_url":
    case "input_video":
      return toVideoPart(part.video_url?.url, part.uuid);
    case "video":
      return toVideoPart(part.video, part.uuid);
    case "file":
      return { type: "document", reference: documentReference(part.file) };
    case "input_file":
      return { type: "document", reference: documentReference(part) };
    case "document_url":
      return { type: "document", reference: part.document_url.url };
  }
}

function toEmbeddingsPart(given: Extract<PartFields, { type: "image_embeds" }>["image_embeds"]): ImagePart {
  if (typeof given === "string") return { type: "image_embeds", reference: toReference(given, "") };
  const { image_embeds: file, image_grid_thw: grid } = given;
  const reference = toReference(file, "");
  if (!grid) return { type: "image_embeds", reference };
  const [numTimes = 1, numRows = 1, numColumns = 1] = grid;
  return { type: "image_embeds", reference, grid: [numTimes, numRows, numColumns] };
}

function toImagePart(reference: string | null | undefined, uuid: string | null | undefined): ImagePart {
  return { type: "image", reference: reference ?? null, ...(typeof uuid === "string" && { uuid }) };
}

function toVideoPart(
  reference: string | readonly string[] | null | undefined,
  uuid: string | null | undefined,
): VideoPart {
  return { type: "video", reference: reference ?? null, ...(typeof uuid === "string" && { uuid }) };
}

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
