/** Converts wire fields to engine requests. Snake case ends here. */
import { createSamplingParams } from "../../engine/index.ts";
import type {
  ChatMessage,
  ChatPromptInput,
  ContentPart,
  GenerationRequest,
  ImagePart,
  ReasoningParams,
  SamplingParams,
  StructuredOutput,
  ToolDefinition,
} from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { EchoOptions } from "./completion-answer.ts";
import type { ModelFormats } from "./parsed-output/model-formats.ts";
import type { OutputParsing } from "./parsed-output/output-parser.ts";
import { planTools, UnenforceableTool } from "./parsed-output/tool-plan.ts";
import type { ToolPlan } from "./parsed-output/tool-plan.ts";
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
  readonly formats: ModelFormats;
}

/** Throws HttpError or EngineError `invalid_argument` for values out of range. */
export function toChatRequest(
  requestId: string,
  fields: ChatCompletionRequest,
  { maxLogprobs, samplingParams: defaults, tenant, formats }: RequestDefaults,
): GenerationRequest {
  const plan = planToolsOf(fields, formats);
  const logprobs = fields.logprobs ? (fields.top_logprobs ?? 0) : null;
  checkLogprobs(logprobs, maxLogprobs, "top_logprobs");
  checkLogprobs(fields.prompt_logprobs ?? null, maxLogprobs, "prompt_logprobs");
  return {
    requestId,
    prompt: {
      kind: "chat",
      messages: fields.messages.map(toChatMessage),
      addGenerationPrompt: fields.add_generation_prompt ?? true,
      ...toolsOfPrompt(fields),
      ...templateArguments(fields),
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
        structuredOutput: plan?.structuredOutput ?? structuredOutputOf(fields),
        keptSpecialTokens: plan?.parsing.format.specialTokens ?? [],
        reasoning: reasoningOf(fields, formats),
      },
      defaults,
    ),
  };
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
  try {
    return planTools(
      {
        tools: fields.tools ?? [],
        choice: fields.tool_choice ?? "auto",
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
  if (reasoning !== null) {
    const { start, end, startsInside } = reasoning;
    return { start, end, startsInside, tokenBudget: budget ?? null };
  }
  if (typeof budget !== "number") return null;
  throw new HttpError(
    400,
    "invalid_value",
    "thinking_token_budget cannot be applied: this model does not mark its thinking. REASONING_PARSER sets its markers.",
    { parameter: "thinking_token_budget" },
  );
}

/** With `tool_choice: none`, the model does not see the tools. */
function toolsOfPrompt({ tools, tool_choice: choice }: ChatCompletionRequest): Pick<ChatPromptInput, "tools"> {
  return !tools || tools.length === 0 || choice === "none" ? {} : { tools };
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
      structuredOutput: structuredOutputOf(fields),
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
  const isToolForm = structuredOutputOf(fields) === null && (fields.tools ?? []).length > 0;
  return { prompt: "messages", images, structuredOutput: isToolForm ? "tools" : structuredOutputField(fields) };
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
  readonly structuredOutput: StructuredOutput | null;
  readonly keptSpecialTokens?: readonly string[];
  readonly reasoning?: ReasoningParams | null;
}

function toSamplingParams(
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
    skipSpecialTokens: fields.skip_special_tokens ?? undefined,
    logprobs,
    promptLogprobs,
    structuredOutput,
    keptSpecialTokens,
    reasoning,
    extraArgs: { ...defaults.extraArgs, ...fields.vllm_xargs },
  });
}

/** Some clients send 64-bit seeds, but the engine accepts 53 bits. Equal seeds stay equal. */
function toSeed(seed: number | null | undefined): number | undefined {
  if (seed === null || seed === undefined) return undefined;
  return Number.isSafeInteger(seed) ? seed : Number(BigInt.asIntN(53, BigInt(seed)));
}

function toChatMessage(message: ChatMessageFields): ChatMessage {
  const { role, content, name } = message;
  return {
    role: role === "developer" ? "system" : role,
    content: typeof content === "object" && content !== null ? content.map(toContentPart) : (content ?? ""),
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
      return { type: "image_embeds", reference: embeddingsReference(part.image_embeds) };
  }
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
