/** Answers of POST /v1/chat/completions, as a whole and in chunks. */
import type { DecodedPrompt, DecodedTokenLogprobs, FinishReason, RequestOutput } from "../../engine/index.ts";
import { gatherChoices } from "./gathered-choices.ts";
import type { Generation } from "./generations.ts";
import { toChoiceUsage, toUsage } from "./usage.ts";
import type { Usage } from "./usage.ts";
import { toChatLogprobs, toPromptLogprobs } from "./wire-logprobs.ts";
import type { ChatLogprobs } from "./wire-logprobs.ts";

export interface AnswerHead {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
}

export interface StreamUsageOptions {
  readonly includeUsage: boolean;
  /** Usage so far in every chunk; applies only with `includeUsage`. */
  readonly continuousUsage: boolean;
}

/** How an answer shows tokens; vLLM's fields. */
export interface TokenOptions {
  /** Ids of the prompt's and the output's tokens beside the text (`return_token_ids`). */
  readonly returnsTokenIds: boolean;
  /** `token_id:<id>` instead of text in logprobs (`return_tokens_as_token_ids`). */
  readonly tokensAsIds: boolean;
}

export async function toChatCompletion(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  { returnsTokenIds, tokensAsIds }: TokenOptions,
): Promise<object> {
  const choices = await gatherChoices(generations);
  const promptLogprobs = choices[0]?.prompt?.logprobs ?? null;
  return {
    ...head,
    object: "chat.completion",
    choices: choices.map(({ text, logprobs, tokenIds, last }, index) => ({
      index,
      message: { role: "assistant", content: text, refusal: null },
      logprobs: logprobs === null ? null : toChatLogprobs(logprobs, tokensAsIds),
      finish_reason: last.finishReason,
      stop_reason: last.stopReason,
      ...(returnsTokenIds && { token_ids: tokenIds }),
    })),
    ...(returnsTokenIds && { prompt_token_ids: promptTokenIds(choices[0]?.prompt ?? null) }),
    usage: toUsage(choices.map(({ last }) => last)),
    ...(promptLogprobs !== null && { prompt_logprobs: toPromptLogprobs(promptLogprobs) }),
  };
}

/** Null without a prompt. */
export function promptTokenIds(prompt: DecodedPrompt | null): readonly number[] | null {
  return prompt?.tokens.map(({ tokenId }) => tokenId) ?? null;
}

interface ChatDelta {
  readonly role?: "assistant";
  readonly content?: string;
}

interface ChunkChoice {
  readonly index: number;
  readonly delta: ChatDelta;
  readonly logprobs: ChatLogprobs | null;
  readonly finish_reason: FinishReason | null;
  readonly stop_reason?: string | number | null;
  readonly token_ids?: readonly number[];
}

/**
 * For each choice: a role chunk, chunks with text, and one finish chunk with the remaining text; at the end a usage
 * chunk if requested. Choices interleave as their tokens arrive. Outputs without text (an incomplete character or stop
 * string) give no chunk; their logprobs and token ids come with the next one.
 */
export async function* toChatChunks(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  { includeUsage, continuousUsage }: StreamUsageOptions,
  { returnsTokenIds, tokensAsIds }: TokenOptions,
): AsyncGenerator<object> {
  const chunk = (choices: readonly ChunkChoice[], usage: Usage | null): object => ({
    ...head,
    object: "chat.completion.chunk",
    choices,
    // As OpenAI: null in all chunks but the last.
    ...(includeUsage && { usage }),
  });
  const usageOf = (output: RequestOutput): Usage | null =>
    includeUsage && continuousUsage ? toChoiceUsage(output) : null;
  const lastOutputs: RequestOutput[] = [];
  const heldLogprobs: DecodedTokenLogprobs[][] = [];
  const heldTokenIds: number[][] = [];
  for await (const { index, output } of generations) {
    if (lastOutputs[index] === undefined) {
      heldLogprobs[index] = [];
      heldTokenIds[index] = [];
      const delta: ChatDelta = { role: "assistant", content: "" };
      const first = chunk(
        [{ index, delta, logprobs: null, finish_reason: null }],
        usageOf({ ...output, numOutputTokens: 0 }),
      );
      yield returnsTokenIds ? { ...first, prompt_token_ids: promptTokenIds(output.prompt) } : first;
    }
    lastOutputs[index] = output;
    if (output.logprobs) heldLogprobs[index].push(...output.logprobs);
    if (returnsTokenIds) heldTokenIds[index].push(...output.tokenIds);
    if (output.text === "" && output.finishReason === null) continue;
    const logprobs = output.logprobs === null ? null : toChatLogprobs(heldLogprobs[index], tokensAsIds);
    heldLogprobs[index] = [];
    const tokens = returnsTokenIds ? { token_ids: heldTokenIds[index] } : {};
    heldTokenIds[index] = [];
    const delta: ChatDelta = output.text === "" ? {} : { content: output.text };
    const ending = output.finishReason === null ? {} : { stop_reason: output.stopReason };
    yield chunk(
      [{ index, delta, logprobs, finish_reason: output.finishReason, ...ending, ...tokens }],
      usageOf(output),
    );
  }
  if (includeUsage) yield chunk([], toUsage(lastOutputs));
}
