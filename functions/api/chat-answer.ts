/** Answers of POST /v1/chat/completions, whole and chunk by chunk. */
import type { DecodedTokenLogprobs, FinishReason, RequestOutput } from "../../engine/index.ts";
import type { Generation } from "./generations.ts";
import { toUsage } from "./usage.ts";
import { toChatLogprobs } from "./wire-logprobs.ts";
import type { ChatLogprobs } from "./wire-logprobs.ts";

export interface AnswerHead {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

export interface StreamUsageOptions {
  readonly includeUsage: boolean;
  /** Usage so far on every chunk; counts only with `includeUsage`. */
  readonly continuousUsage: boolean;
}

export async function toChatCompletion(head: AnswerHead, generations: AsyncIterable<Generation>): Promise<object> {
  let text = "";
  const logprobs: DecodedTokenLogprobs[] = [];
  let last: RequestOutput | null = null;
  for await (const { output } of generations) {
    text += output.text;
    if (output.logprobs) logprobs.push(...output.logprobs);
    last = output;
  }
  const choice = {
    index: 0,
    message: { role: "assistant", content: text, refusal: null },
    logprobs: last?.logprobs ? toChatLogprobs(logprobs) : null,
    finish_reason: last?.finishReason ?? null,
    stop_reason: last?.stopReason ?? null,
  };
  return { ...head, object: "chat.completion", choices: [choice], usage: toUsage(last === null ? [] : [last]) };
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
}

/**
 * A role chunk, chunks with text, one finish chunk that carries what text is left, and a usage chunk when asked for.
 * Outputs without text (an open character or stop string) give no chunk; their logprobs come with the next one.
 */
export async function* toChatChunks(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  { includeUsage, continuousUsage }: StreamUsageOptions,
): AsyncGenerator<object> {
  const chunk = (choices: readonly ChunkChoice[], output: RequestOutput, withUsage: boolean): object => ({
    ...head,
    object: "chat.completion.chunk",
    choices,
    ...(withUsage && { usage: toUsage([output]) }),
  });
  const withUsage = includeUsage && continuousUsage;
  let heldLogprobs: DecodedTokenLogprobs[] = [];
  let last: RequestOutput | null = null;
  for await (const { output } of generations) {
    if (last === null) {
      const delta: ChatDelta = { role: "assistant", content: "" };
      const noneYet = { ...output, numOutputTokens: 0 };
      yield chunk([{ index: 0, delta, logprobs: null, finish_reason: null }], noneYet, withUsage);
    }
    last = output;
    if (output.logprobs) heldLogprobs.push(...output.logprobs);
    if (output.text === "" && output.finishReason === null) continue;
    const logprobs = output.logprobs === null ? null : toChatLogprobs(heldLogprobs);
    heldLogprobs = [];
    const delta: ChatDelta = output.text === "" ? {} : { content: output.text };
    const ending = output.finishReason === null ? {} : { stop_reason: output.stopReason };
    yield chunk([{ index: 0, delta, logprobs, finish_reason: output.finishReason, ...ending }], output, withUsage);
  }
  if (includeUsage && last !== null) yield chunk([], last, true);
}
