/** Answers of POST /v1/responses, as a whole and as events. */
import type { RequestOutput, SamplingParams } from "../../../engine/index.ts";
import type { ErrorBody } from "../../http/error-body.ts";
import type { AnswerHead } from "../answer-options.ts";
import type { AnsweringModel } from "../generation-kind.ts";
import { AnswerParts } from "../parsed-output/answer-parts.ts";
import type { PartEvent } from "../parsed-output/answer-parts.ts";
import type {
  ParsedFinishReason,
  ParsedGeneration,
  ToolCallDelta,
  ToolCallStart,
} from "../parsed-output/parsed-delta.ts";
import { toItem, toItemEvents } from "./response-events.ts";
import type { ItemOptions } from "./response-events.ts";
import { toResponseObject } from "./response-object.ts";
import type { ResponseState } from "./response-object.ts";
import { functionsOf } from "./response-tools.ts";
import type { ResponsesRequest } from "./responses-request.ts";

type RespondingModel = Pick<AnsweringModel, "defaultSamplingParams">;

/** Mutable: an answer while it grows. */
class GrowingResponse {
  readonly #head: AnswerHead;
  readonly #fields: ResponsesRequest;
  readonly #defaults: Partial<SamplingParams>;
  readonly #parts = new AnswerParts();
  /** What the client calls functions that the model sees in another form, by the name that the model sees. */
  readonly #givenCalls: ReadonlyMap<string, Partial<ToolCallStart>>;
  readonly #items: ItemOptions;
  #last: RequestOutput | null = null;
  #finishReason: ParsedFinishReason | null = null;

  constructor(head: AnswerHead, fields: ResponsesRequest, { defaultSamplingParams }: RespondingModel) {
    this.#head = head;
    this.#fields = fields;
    this.#defaults = defaultSamplingParams;
    this.#items = { encodesThinking: (fields.include ?? []).includes("reasoning.encrypted_content") };
    this.#givenCalls = new Map(
      functionsOf(fields).flatMap(({ tool, inNamespace, custom }) =>
        inNamespace || custom ? [[tool.name, { ...inNamespace, ...(custom && { isCustom: true }) }] as const] : [],
      ),
    );
  }

  get state(): ResponseState {
    const reason = this.#finishReason;
    const isWhole = reason === "stop" || reason === "tool_calls";
    return isWhole ? { status: "completed" } : { status: "incomplete", reason: "max_output_tokens" };
  }

  /** Returns events without their numbers. */
  append(generation: ParsedGeneration): readonly object[] {
    this.#last = generation.output;
    this.#finishReason = generation.finishReason;
    return this.#toEvents(this.#parts.append(this.#asGiven(generation)));
  }

  #asGiven(generation: ParsedGeneration): ParsedGeneration {
    const { toolCalls } = generation.delta;
    if (toolCalls === undefined || this.#givenCalls.size === 0) return generation;
    const named = toolCalls.map((call) => this.#toGivenCall(call));
    return { ...generation, delta: { ...generation.delta, toolCalls: named } };
  }

  #toGivenCall(call: ToolCallDelta): ToolCallDelta {
    if (call.start === undefined) return call;
    return { ...call, start: { ...call.start, ...this.#givenCalls.get(call.start.name) } };
  }

  /** As `append`. */
  finish(): readonly object[] {
    return this.#toEvents(this.#parts.finish(this.state.status === "completed"));
  }

  #toEvents(events: readonly PartEvent[]): readonly object[] {
    return events.flatMap((event) => toItemEvents(event, this.#items));
  }

  toObject(state: ResponseState): object {
    const { parts, numReasoningTokens } = this.#parts;
    const isOpen = state.status === "in_progress";
    const isCut = state.status === "incomplete" || state.status === "failed";
    const output = isOpen
      ? []
      : parts.map((part) => toItem(part, isCut && part === parts.at(-1) ? "incomplete" : "completed", this.#items));
    const content = { output, last: this.#last, numReasoningTokens };
    return toResponseObject(this.#head, { ...this.#fields, defaults: this.#defaults }, state, content);
  }
}

export async function toResponse(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  fields: ResponsesRequest,
  model: RespondingModel,
): Promise<object> {
  const response = new GrowingResponse(head, fields, model);
  for await (const generation of generations) response.append(generation);
  response.finish();
  return response.toObject(response.state);
}

/**
 * The events in OpenAI's order, numbered from 0. A failure after the first event becomes `response.failed`; an earlier
 * one is thrown.
 */
export async function* toResponseEvents(
  head: AnswerHead,
  generations: AsyncIterable<ParsedGeneration>,
  fields: ResponsesRequest,
  model: RespondingModel,
  describeError: (error: unknown) => ErrorBody,
): AsyncGenerator<object> {
  const response = new GrowingResponse(head, fields, model);
  let numEvents = 0;
  const numbered = (event: object): object => ({ ...event, sequence_number: numEvents++ });
  try {
    for await (const generation of generations) {
      if (numEvents === 0) {
        const started = response.toObject({ status: "in_progress" });
        yield numbered({ type: "response.created", response: started });
        yield numbered({ type: "response.in_progress", response: started });
      }
      for (const event of response.append(generation)) yield numbered(event);
    }
    for (const event of response.finish()) yield numbered(event);
    const { state } = response;
    yield numbered({ type: `response.${state.status}`, response: response.toObject(state) });
  } catch (error) {
    if (numEvents === 0) throw error;
    const state: ResponseState = { status: "failed", error: describeError(error) };
    yield numbered({ type: "response.failed", response: response.toObject(state) });
  }
}
