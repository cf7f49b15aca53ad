/** Converts the wire fields of chat completions to engine requests. Snake case ends here. */
import type {
  ChatMessage,
  ChatPromptInput,
  ContentPart,
  GenerationRequest,
  ReasoningParams,
  ToolDefinition,
} from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { InlineImages } from "../settings/images.ts";
import { partsOf } from "./content-parts.ts";
import { documentPagesOf } from "./document-pages.ts";
import type { ModelFormats } from "./parsed-output/model-formats.ts";
import type { OutputParsing } from "./parsed-output/output-parser.ts";
import { planTools, UnenforceableTool } from "./parsed-output/tool-plan.ts";
import type { ToolPlan } from "./parsed-output/tool-plan.ts";
import {
  cacheOwner,
  checkLogprobs,
  processorOptions,
  structuredOutputField,
  structuredOutputOf,
  toSamplingParams,
  truncation,
} from "./request-options.ts";
import type { RequestDefaults } from "./request-options.ts";
import type { ChatCompletionRequest, ChatMessageFields } from "./schemas/chat-completion-request.ts";
import { callableTools, requiresCall } from "./schemas/tool-fields.ts";
import { imageProcessorOptions, videoSamplingOf } from "./video-sampling.ts";

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
  const messages = fields.messages.map((message, index) => toChatMessage(message, index, inlineImages));
  const choosesFrames = Boolean(fields.media_io_kwargs ?? fields.mm_processor_kwargs) || messages.some(hasVideos);
  return {
    requestId,
    prompt: {
      kind: "chat",
      messages,
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
    ...(choosesFrames && videoSamplingOf(fields, requestDefaults)),
    ...(fields.media_io_kwargs && documentPagesOf(fields)),
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

function hasVideos({ content }: ChatMessage): boolean {
  return typeof content !== "string" && content.some(({ type }) => type === "video");
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
