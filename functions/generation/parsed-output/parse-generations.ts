/** Parses the outputs of a request into deltas, and gathers them into whole answers. */
import type { DecodedPrompt, DecodedTokenLogprobs, RequestOutput } from "../../../engine/index.ts";
import type { Generation } from "../generations.ts";
import { joinDeltas, OutputParser } from "./output-parser.ts";
import type { OutputParsing } from "./output-parser.ts";
import type { ParsedDelta, ParsedFinishReason, ParsedGeneration, ParsedToolCall } from "./parsed-delta.ts";

/** One parsed output for each output, in the same order. */
export async function* parseGenerations(
  generations: AsyncIterable<Generation>,
  parsing: OutputParsing,
): AsyncGenerator<ParsedGeneration> {
  if (parsing.toolCalls === null && parsing.reasoning === null) {
    for await (const { index, output } of generations) {
      const delta = output.text === "" ? {} : { content: output.text };
      const answerLogprobs = output.logprobs ?? [];
      yield { index, output, delta, finishReason: output.finishReason, numReasoningTokens: 0, answerLogprobs };
    }
    return;
  }
  const choices: ParsedTokens[] = [];
  for await (const { index, output } of generations) {
    const choice = (choices[index] ??= new ParsedTokens(parsing, output));
    const { delta, answerLogprobs } = choice.append(output);
    const finishReason = finishReasonOf(output, choice.parser);
    const { numReasoningTokens } = choice;
    yield { index, output, delta, finishReason, numReasoningTokens, answerLogprobs };
  }
}

/**
 * Parses the outputs of one choice. An output may have several tokens, if drafts were accepted or its reader was slow;
 * while they may belong to thinking, they are parsed one by one. Mutable.
 */
class ParsedTokens {
  readonly parser: OutputParser;
  numReasoningTokens = 0;
  /** Of tokens that may be a start marker of thinking, or a part of one. */
  #heldLogprobs: DecodedTokenLogprobs[] = [];

  constructor(parsing: OutputParsing, { reasoningStart }: RequestOutput) {
    this.parser = new OutputParser(parsing, reasoningStart ?? null);
  }

  append(output: RequestOutput): Pick<ParsedGeneration, "delta" | "answerLogprobs"> {
    const { parser } = this;
    const { text, tokenIds, textEnds = [], logprobs } = output;
    const answerLogprobs: DecodedTokenLogprobs[] = [];
    let delta: ParsedDelta = {};
    let from = 0;
    do {
      // All at once if the output does not tell its tokens apart, or if they are the answer's.
      const to = parser.phase === "answer" || from >= textEnds.length ? tokenIds.length : from + 1;
      const isLast = to >= tokenIds.length;
      const parsed = parser.append(text.slice(textEnds[from - 1] ?? 0, isLast ? text.length : textEnds[from]));
      delta = from === 0 ? parsed : joinDeltas(delta, parsed);
      if (isLast && output.finishReason !== null) delta = joinDeltas(delta, parser.finish());
      if (parser.isThinking) this.numReasoningTokens += to - from;
      if (logprobs !== null) {
        this.#heldLogprobs.push(...logprobs.slice(from, to));
        if (parser.phase === "answer") answerLogprobs.push(...this.#heldLogprobs);
        if (parser.phase !== "unknown") this.#heldLogprobs = [];
      }
      from = to;
    } while (from < tokenIds.length);
    return { delta, answerLogprobs };
  }
}

/** A stop string within a call ends the answer like one within a text: the client must not run such a call. */
function finishReasonOf({ finishReason, stopReason }: RequestOutput, parser: OutputParser): ParsedFinishReason | null {
  if (finishReason !== "stop" || !parser.hasCalls) return finishReason;
  return typeof stopReason === "string" && !parser.hasWholeCall() ? "stop" : "tool_calls";
}

/** A choice of an answer that is sent as a whole. */
export interface ParsedChoice {
  readonly content: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ParsedToolCall[];
  readonly finishReason: ParsedFinishReason | null;
  /** Null if the request does not ask for logprobs. */
  readonly logprobs: readonly DecodedTokenLogprobs[] | null;
  readonly prompt: DecodedPrompt | null;
  readonly tokenIds: readonly number[];
  readonly last: RequestOutput;
  readonly numReasoningTokens: number;
}

interface OpenChoice {
  readonly content: string[];
  readonly reasoning: string[];
  readonly toolCalls: { id: string; name: string; readonly arguments: string[] }[];
  readonly logprobs: DecodedTokenLogprobs[];
  readonly tokenIds: number[];
  readonly first: RequestOutput;
  last: ParsedGeneration;
}

/** In the order of their indices. */
export async function gatherParsedChoices(generations: AsyncIterable<ParsedGeneration>): Promise<ParsedChoice[]> {
  const choices: OpenChoice[] = [];
  for await (const generation of generations) addTo(choices, generation);
  return choices.map(({ content, reasoning, toolCalls, logprobs, tokenIds, first, last }) => ({
    content: content.join(""),
    reasoning: reasoning.join(""),
    toolCalls: toolCalls.map(({ id, name, arguments: pieces }) => ({ id, name, arguments: pieces.join("") })),
    finishReason: last.finishReason,
    logprobs: last.output.logprobs === null ? null : logprobs,
    prompt: first.prompt,
    tokenIds,
    last: last.output,
    numReasoningTokens: last.numReasoningTokens,
  }));
}

function addTo(choices: OpenChoice[], generation: ParsedGeneration): void {
  const { index, output, delta } = generation;
  const choice = (choices[index] ??= {
    content: [],
    reasoning: [],
    toolCalls: [],
    logprobs: [],
    tokenIds: [],
    first: output,
    last: generation,
  });
  choice.last = generation;
  if (delta.content !== undefined) choice.content.push(delta.content);
  if (delta.reasoning !== undefined) choice.reasoning.push(delta.reasoning);
  for (const { index: callIndex, start, arguments: piece } of delta.toolCalls ?? []) {
    if (start !== undefined) choice.toolCalls[callIndex] = { ...start, arguments: [] };
    choice.toolCalls[callIndex]?.arguments.push(piece);
  }
  choice.tokenIds.push(...output.tokenIds);
  for (const logprob of output.logprobs ?? []) choice.logprobs.push(logprob);
}
