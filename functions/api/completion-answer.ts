/** Answers of POST /v1/completions, whole and chunk by chunk; choice `index` is the prompt's. */
import type { DecodedTokenLogprobs, FinishReason, RequestOutput } from "../../engine/index.ts";
import type { AnswerHead, StreamUsageOptions } from "./chat-answer.ts";
import type { Generation } from "./generations.ts";
import { toUsage } from "./usage.ts";
import { toCompletionLogprobs } from "./wire-logprobs.ts";
import type { CompletionLogprobs } from "./wire-logprobs.ts";

interface CompletionChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: FinishReason | null;
  readonly stop_reason?: string | number | null;
}

/** Mutable: one choice while it grows. */
interface GrowingChoice {
  text: string;
  logprobs: DecodedTokenLogprobs[];
  last: RequestOutput;
}

export async function toCompletion(head: AnswerHead, generations: AsyncIterable<Generation>): Promise<object> {
  const growing: GrowingChoice[] = [];
  for await (const { index, output } of generations) {
    const choice = (growing[index] ??= { text: "", logprobs: [], last: output });
    choice.text += output.text;
    if (output.logprobs) choice.logprobs.push(...output.logprobs);
    choice.last = output;
  }
  const choices = growing.map(({ text, logprobs, last }, index): CompletionChoice => ({
    index,
    text,
    logprobs: last.logprobs === null ? null : toCompletionLogprobs(logprobs, 0),
    finish_reason: last.finishReason,
    stop_reason: last.stopReason,
  }));
  return { ...head, object: "text_completion", choices, usage: toUsage(growing.map(({ last }) => last)) };
}

/** Chunks with text, one finish chunk a choice that carries what text is left, and a usage chunk when asked for. */
export async function* toCompletionChunks(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  { includeUsage, continuousUsage }: StreamUsageOptions,
): AsyncGenerator<object> {
  const chunk = (choices: readonly CompletionChoice[], usageOf: readonly RequestOutput[] | null): object => ({
    ...head,
    object: "text_completion",
    choices,
    ...(usageOf !== null && { usage: toUsage(usageOf) }),
  });
  const lastOutputs: RequestOutput[] = [];
  const heldLogprobs: DecodedTokenLogprobs[][] = [];
  const textOffsets: number[] = [];
  for await (const { index, output } of generations) {
    lastOutputs[index] = output;
    const held = (heldLogprobs[index] ??= []);
    if (output.logprobs) held.push(...output.logprobs);
    if (output.text === "" && output.finishReason === null) continue;
    const offset = textOffsets[index] ?? 0;
    const choice = {
      index,
      text: output.text,
      logprobs: output.logprobs === null ? null : toCompletionLogprobs(held, offset),
      finish_reason: output.finishReason,
      ...(output.finishReason !== null && { stop_reason: output.stopReason }),
    };
    textOffsets[index] = held.reduce((sum, { sampled }) => sum + sampled.token.length, offset);
    heldLogprobs[index] = [];
    yield chunk([choice], includeUsage && continuousUsage ? [output] : null);
  }
  if (includeUsage) yield chunk([], lastOutputs);
}
