/** Chat completions: their kind, for HTTP and batch lines, and their answers, as a whole and in chunks. */
import type { DecodedPrompt, DecodedTokenLogprobs, RequestOutput } from "../../engine/index.ts";
import type { AnswerHead, StreamUsageOptions, TokenOptions } from "./answer-options.ts";
import { HeldCustomCalls, textOfCustomCall } from "./custom-tools.ts";
import type { GenerationKind } from "./generation-kind.ts";
import { gatherParsedChoices, parseGenerations } from "./parsed-output/parse-generations.ts";
import type {
  ParsedDelta,
  ParsedFinishReason,
  ParsedGeneration,
  ParsedToolCall,
} from "./parsed-output/parsed-delta.ts";
import { tokenOptions } from "./request-options.ts";
import { chatCompletionRequest } from "./schemas/chat-completion-request.ts";
import type { ChatCompletionRequest } from "./schemas/chat-completion-request.ts";
import { unservedInChat } from "./schemas/unserved-fields.ts";
import { chatParsing, chatRequestPaths, toChatRequest } from "./to-chat-request.ts";
import { toChoiceUsage, toUsage } from "./usage.ts";
import type { Usage } from "./usage.ts";
import { toChatLogprobs, toPromptLogprobs } from "./wire-logprobs.ts";
import type { ChatLogprobs } from "./wire-logprobs.ts";

export const chatCompletionKind: GenerationKind<ChatCompletionRequest> = {
  idPrefix: "chatcmpl-",
  schema: chatCompletionRequest,
  unservedFields: unservedInChat,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, fields, defaults)],
  paths: chatRequestPaths,
  toAnswer: (head, generations, fields, formats) =>
    toChatCompletion(head, parseGenerations(generations, chatParsing(fields, formats)), answerOptions(fields)),
  toChunks: (head, generations, usage, fields, formats) =>
    toChatChunks(head, parseGenerations(generations, chatParsing(fields, formats)), usage, answerOptions(fields)),
};

interface ChatAnswerOptions extends TokenOptions {
  readonly customNames: ReadonlySet<string>;
}

function answerOptions(fields: ChatCompletionRequest): ChatAnswerOptions {
  const custom = (fields.tools ?? []).filter(({ isCustom }) => isCustom === true);
  return { ...tokenOptions(fields), customNames: new Set(custom.map(({ name }) => name)) };
}

async function toChatCompletion(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  { returnsTokenIds, tokensAsIds, customNames }: ChatAnswerOptions,
): Promise<object> {
  const choices = await gatherParsedChoices(generations);
  const promptLogprobs = choices[0]?.prompt?.logprobs ?? null;
  return {
    ...head,
    object: "chat.completion",
    choices: choices.map(({ content, reasoning, toolCalls, finishReason, logprobs, tokenIds, last }, index) => ({
      index,
      message: {
        role: "assistant",
        content: content === "" && toolCalls.length > 0 ? null : content,
        refusal: null,
        ...(reasoning !== "" && reasoningFields(reasoning)),
        ...(toolCalls.length > 0 && { tool_calls: toolCalls.map((call) => toWireCall(call, customNames)) }),
      },
      logprobs: logprobs === null ? null : toChatLogprobs(logprobs, tokensAsIds),
      finish_reason: finishReason,
      stop_reason: last.stopReason,
      ...(returnsTokenIds && { token_ids: tokenIds }),
    })),
    ...(returnsTokenIds && { prompt_token_ids: promptTokenIds(choices[0]?.prompt ?? null) }),
    usage: toUsage(
      choices.map(({ last }) => last),
      choices.reduce((total, { numReasoningTokens }) => total + numReasoningTokens, 0),
    ),
    ...(promptLogprobs !== null && { prompt_logprobs: await toPromptLogprobs(promptLogprobs) }),
  };
}

function toWireCall({ id, name, arguments: json }: ParsedToolCall, customNames: ReadonlySet<string>): object {
  if (customNames.has(name)) return { id, type: "custom", custom: { name, input: textOfCustomCall(json) } };
  return { id, type: "function", function: { name, arguments: json } };
}

/** DeepSeek's name and the newer one of vLLM and OpenRouter. Each client reads one of them. */
function reasoningFields(text: string): Pick<ChatDelta, "reasoning_content" | "reasoning"> {
  return { reasoning_content: text, reasoning: text };
}

/** Null without a prompt. */
export function promptTokenIds(prompt: DecodedPrompt | null): readonly number[] | null {
  return prompt?.tokens.map(({ tokenId }) => tokenId) ?? null;
}

interface ChatDelta {
  readonly role?: "assistant";
  readonly content?: string;
  readonly reasoning_content?: string;
  readonly reasoning?: string;
  readonly tool_calls?: readonly object[];
}

/** The id, type and name are in the first delta of a call only: clients join the texts of all its deltas. */
function toChatDelta(
  { content, reasoning, toolCalls = [] }: ParsedDelta,
  held: HeldCustomCalls | undefined,
  isLast: boolean,
): ChatDelta {
  const calls = held?.append(toolCalls, isLast) ?? [];
  return {
    ...(content !== undefined && { content }),
    ...(reasoning !== undefined && reasoningFields(reasoning)),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

interface ChunkChoice {
  readonly index: number;
  readonly delta: ChatDelta;
  readonly logprobs: ChatLogprobs | null;
  readonly finish_reason: ParsedFinishReason | null;
  readonly stop_reason?: string | number | null;
  readonly token_ids?: readonly number[];
}

/**
 * For each choice: a role chunk, chunks with text, thinking and calls, and one finish chunk with the rest; at the end a
 * usage chunk if requested. Choices interleave as their tokens arrive. Outputs without news (an incomplete character,
 * stop string or call) give no chunk; their logprobs and token ids come with the next one.
 */
async function* toChatChunks(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  { includeUsage, continuousUsage }: StreamUsageOptions,
  { returnsTokenIds, tokensAsIds, customNames }: ChatAnswerOptions,
): AsyncGenerator<object> {
  const chunk = (choices: readonly ChunkChoice[], usage: Usage | null): object => ({
    ...head,
    object: "chat.completion.chunk",
    choices,
    // As OpenAI: null in all chunks but the last.
    ...(includeUsage && { usage }),
  });
  const usageOf = (output: RequestOutput, numTokensOfThinking: number): Usage | null =>
    includeUsage && continuousUsage ? toChoiceUsage(output, numTokensOfThinking) : null;
  const lastOutputs: RequestOutput[] = [];
  /** By choice. */
  const numReasoningTokens: number[] = [];
  const heldLogprobs: DecodedTokenLogprobs[][] = [];
  const heldTokenIds: number[][] = [];
  /** By choice, from its first call on. */
  const heldCalls: (HeldCustomCalls | undefined)[] = [];
  for await (const { index, output, delta: parsed, finishReason, numReasoningTokens: numOfChoice } of generations) {
    if (lastOutputs[index] === undefined) {
      heldLogprobs[index] = [];
      heldTokenIds[index] = [];
      const delta: ChatDelta = { role: "assistant", content: "" };
      const first = chunk(
        [{ index, delta, logprobs: null, finish_reason: null }],
        usageOf({ ...output, numOutputTokens: 0 }, 0),
      );
      yield returnsTokenIds ? { ...first, prompt_token_ids: promptTokenIds(output.prompt) } : first;
    }
    lastOutputs[index] = output;
    numReasoningTokens[index] = numOfChoice;
    if (output.logprobs) heldLogprobs[index]!.push(...output.logprobs);
    if (returnsTokenIds) heldTokenIds[index]!.push(...output.tokenIds);
    if (parsed.toolCalls !== undefined) heldCalls[index] ??= new HeldCustomCalls(customNames);
    const delta = toChatDelta(parsed, heldCalls[index], finishReason !== null);
    if (finishReason === null && Object.keys(delta).length === 0) continue;
    const logprobs = output.logprobs === null ? null : toChatLogprobs(heldLogprobs[index]!, tokensAsIds);
    heldLogprobs[index] = [];
    const tokens = returnsTokenIds ? { token_ids: heldTokenIds[index]! } : {};
    heldTokenIds[index] = [];
    const ending = finishReason === null ? {} : { stop_reason: output.stopReason };
    const choice = { index, delta, logprobs, finish_reason: finishReason, ...ending, ...tokens };
    yield chunk([choice], usageOf(output, numOfChoice));
  }
  const totalOfThinking = numReasoningTokens.reduce((total, count) => total + count, 0);
  if (includeUsage) yield chunk([], toUsage(lastOutputs, totalOfThinking));
}
