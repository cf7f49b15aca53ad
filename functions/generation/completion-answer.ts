/**
 * Answers of POST /v1/completions, as a whole and in chunks. The choices of a prompt follow those of the previous one.
 */
import type { DecodedPrompt, FinishReason, RequestOutput } from "../../engine/index.ts";
import type { AnswerHead, StreamUsageOptions, TokenOptions } from "./answer-options.ts";
import { promptTokenIds } from "./chat-completion-kind.ts";
import { gatherChoices } from "./gathered-choices.ts";
import { withoutTokens } from "./generations.ts";
import type { Generation } from "./generations.ts";
import { TextOffsets } from "./text-offsets.ts";
import { toChoiceUsage, toUsage } from "./usage.ts";
import type { Usage } from "./usage.ts";
import { promptTokenEntries, toCompletionLogprobs, toPromptLogprobs, tokenEntries } from "./wire-logprobs.ts";
import type { CompletionLogprobs, PromptLogprobs, TokenEntry } from "./wire-logprobs.ts";

/** The parts of its prompt that an answer contains. */
export interface EchoOptions extends TokenOptions {
  /** Whether text and logprobs start with the prompt's. */
  readonly echo: boolean;
  readonly withLogprobs: boolean;
  readonly withPromptLogprobs: boolean;
  /** Whether to leave out the one generated token: the engine always generates at least one. */
  readonly promptOnly: boolean;
}

interface CompletionChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: FinishReason | null;
  readonly stop_reason?: string | number | null;
  readonly prompt_logprobs?: PromptLogprobs;
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[] | null;
}

export async function toCompletion(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  options: EchoOptions,
): Promise<object> {
  const gathered = await gatherChoices(options.promptOnly ? withoutTokens(generations) : generations);
  const choices: CompletionChoice[] = [];
  for (const { text, logprobs, prompt, tokenIds, last } of gathered) {
    const entries = [...echoedEntries(prompt, options), ...tokenEntries(logprobs ?? [])];
    choices.push({
      index: choices.length,
      text: echoedText(prompt, options) + text,
      logprobs: options.withLogprobs
        ? await toCompletionLogprobs(entries, new TextOffsets(), options.tokensAsIds)
        : null,
      finish_reason: last.finishReason,
      stop_reason: last.stopReason,
      ...(options.withPromptLogprobs &&
        prompt?.logprobs && { prompt_logprobs: await toPromptLogprobs(prompt.logprobs) }),
      ...(options.returnsTokenIds && { token_ids: tokenIds, prompt_token_ids: promptTokenIds(prompt) }),
    });
  }
  return { ...head, object: "text_completion", choices, usage: toUsage(gathered.map(({ last }) => last)) };
}

/** Chunks with text, one finish chunk per choice with the remaining text, and a usage chunk if requested. */
export async function* toCompletionChunks(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  { includeUsage, continuousUsage }: StreamUsageOptions,
  options: EchoOptions,
): AsyncGenerator<object> {
  const chunk = (choices: readonly CompletionChoice[], usage: Usage | null): object => ({
    ...head,
    object: "text_completion",
    choices,
    // As OpenAI: null in all chunks but the last.
    ...(includeUsage && { usage }),
  });
  const lastOutputs: RequestOutput[] = [];
  const heldTokenIds: number[][] = [];
  const prompts: (DecodedPrompt | null)[] = [];
  const heldEntries: TokenEntry[][] = [];
  const textOffsets: TextOffsets[] = [];
  for await (const { index, output } of options.promptOnly ? withoutTokens(generations) : generations) {
    const prompt = lastOutputs[index] === undefined ? output.prompt : null;
    lastOutputs[index] = output;
    prompts[index] ??= prompt;
    const heldIds = (heldTokenIds[index] ??= []);
    heldIds.push(...output.tokenIds);
    const held = (heldEntries[index] ??= []);
    held.push(...echoedEntries(prompt, options), ...tokenEntries(output.logprobs ?? []));
    const text = echoedText(prompt, options) + output.text;
    if (text === "" && output.finishReason === null) continue;
    const offsets = (textOffsets[index] ??= new TextOffsets());
    const choice = {
      index,
      text,
      logprobs: options.withLogprobs ? await toCompletionLogprobs(held, offsets, options.tokensAsIds) : null,
      finish_reason: output.finishReason,
      ...(output.finishReason !== null && { stop_reason: output.stopReason }),
      ...(options.returnsTokenIds && { token_ids: heldIds }),
      // With the first chunk of the choice.
      ...(options.returnsTokenIds && prompts[index] && { prompt_token_ids: promptTokenIds(prompts[index]) }),
    };
    heldTokenIds[index] = [];
    prompts[index] = null;
    heldEntries[index] = [];
    yield chunk([choice], includeUsage && continuousUsage ? toChoiceUsage(output) : null);
  }
  if (includeUsage) yield chunk([], toUsage(lastOutputs));
}

function echoedText(prompt: DecodedPrompt | null, { echo }: EchoOptions): string {
  return echo && prompt !== null ? prompt.text : "";
}

function echoedEntries(prompt: DecodedPrompt | null, { echo }: EchoOptions): readonly TokenEntry[] {
  return echo && prompt !== null ? promptTokenEntries(prompt) : [];
}
