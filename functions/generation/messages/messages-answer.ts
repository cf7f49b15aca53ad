/** Answers of POST /v1/messages, as a whole and as events. */
import type { RequestOutput } from "../../../engine/index.ts";
import type { AnswerHead } from "../answer-options.ts";
import { AnswerParts } from "../parsed-output/answer-parts.ts";
import type { ParsedGeneration } from "../parsed-output/parsed-delta.ts";
import { toBlock, toBlockEvents } from "./message-events.ts";

/** Fields of Anthropic's own services, which are empty in every message. */
const emptyFields = { container: null, diagnostics: null, stop_details: null };

/** `isEmpty` leaves out the part that every other answer has. */
export async function toMessage(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  isEmpty: boolean,
): Promise<object> {
  const parts = new AnswerParts();
  let last: ParsedGeneration | null = null;
  for await (const generation of generations) {
    parts.append(generation);
    last = generation;
  }
  if (!isEmpty) parts.finish(true);
  return {
    ...messageHead(head),
    content: parts.parts.map(toBlock),
    ...stopOf(last),
    usage: { ...toMessageUsage(last?.output ?? null, parts.numReasoningTokens), ...emptyUsage },
  };
}

/** Throws an error of the generation: the format of the stream has an event for it. `isEmpty`: see `toMessage`. */
export async function* toMessageEvents(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  isEmpty: boolean,
): AsyncGenerator<object> {
  const parts = new AnswerParts();
  let last: ParsedGeneration | null = null;
  for await (const generation of generations) {
    if (last === null) {
      const usage = { ...toMessageUsage({ ...generation.output, numOutputTokens: 0 }, 0), ...emptyUsage };
      yield { type: "message_start", message: { ...messageHead(head), content: [], ...stopOf(null), usage } };
    }
    last = generation;
    yield* parts.append(generation).flatMap(toBlockEvents);
  }
  if (!isEmpty) yield* parts.finish(true).flatMap(toBlockEvents);
  const usage = toMessageUsage(last?.output ?? null, parts.numReasoningTokens);
  yield { type: "message_delta", delta: { ...stopOf(last), container: null, stop_details: null }, usage };
  yield { type: "message_stop" };
}

function messageHead({ id, model }: AnswerHead): object {
  return { id, type: "message", role: "assistant", model, ...emptyFields };
}

interface Stop {
  readonly stop_reason: "end_turn" | "max_tokens" | "stop_sequence" | "tool_use" | null;
  readonly stop_sequence: string | null;
}

/** Nulls while the message grows. */
function stopOf(last: ParsedGeneration | null): Stop {
  const reason = last?.finishReason ?? null;
  if (last === null || reason === null) return { stop_reason: null, stop_sequence: null };
  if (reason === "tool_calls") return { stop_reason: "tool_use", stop_sequence: null };
  if (reason !== "stop") return { stop_reason: "max_tokens", stop_sequence: null };
  const { stopReason } = last.output;
  return typeof stopReason === "string"
    ? { stop_reason: "stop_sequence", stop_sequence: stopReason }
    : { stop_reason: "end_turn", stop_sequence: null };
}

const emptyUsage = { cache_creation: null, inference_geo: null, service_tier: "standard", speed: null };

/** Anthropic counts the tokens of a prompt that come from a cache apart. */
function toMessageUsage(output: RequestOutput | null, numReasoningTokens: number): object {
  const { numPromptTokens = 0, numCachedTokens = 0, numOutputTokens = 0 } = output ?? {};
  return {
    input_tokens: numPromptTokens - numCachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: numCachedTokens,
    output_tokens: numOutputTokens,
    output_tokens_details: { thinking_tokens: numReasoningTokens },
    server_tool_use: null,
  };
}
