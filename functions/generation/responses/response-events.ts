/** Items of a response and the events that stream them. */
import type { DecodedTokenLogprobs } from "../../../engine/index.ts";
import { textOfCustomCall } from "../custom-tools.ts";
import type { AnswerPart, PartEvent } from "../parsed-output/answer-parts.ts";
import { toChatLogprobs } from "../wire-logprobs.ts";
import { encodeThinking } from "./encoded-thinking.ts";

export type ItemStatus = "in_progress" | "completed" | "incomplete";

const idPrefixes = { reasoning: "rs", text: "msg", call: "fc" } as const satisfies Record<AnswerPart["kind"], string>;

function itemIdOf({ kind, id, call }: AnswerPart): string {
  return `${call?.isCustom === true ? "ctc" : idPrefixes[kind]}_${id}`;
}

export interface ItemOptions {
  /** Whether thinking has `encrypted_content` too, in which clients without stored items send it back. */
  readonly encodesThinking: boolean;
}

/** An item of `output`. */
export function toItem(part: AnswerPart, status: ItemStatus, { encodesThinking }: ItemOptions): object {
  const id = itemIdOf(part);
  const content = status === "in_progress" ? [] : [toContentPart(part)];
  switch (part.kind) {
    case "reasoning":
      return {
        id,
        type: "reasoning",
        status,
        summary: [],
        content,
        ...(encodesThinking && status !== "in_progress" && { encrypted_content: encodeThinking(part.text) }),
      };
    case "text":
      return { id, type: "message", status, role: "assistant", content };
    case "call": {
      const { call } = part;
      const text = status === "in_progress" ? "" : part.text;
      const isCustom = call?.isCustom === true;
      return {
        id,
        type: isCustom ? "custom_tool_call" : "function_call",
        status,
        call_id: call?.id,
        ...(call?.namespace !== undefined && { namespace: call.namespace }),
        name: call?.name,
        ...(isCustom ? { input: textOfCustomCall(text) } : { arguments: text }),
      };
    }
  }
}

/** The events of a part of the answer, in OpenAI's order, without their numbers. */
export function toItemEvents(event: PartEvent, options: ItemOptions): readonly object[] {
  const { part } = event;
  const at = { item_id: itemIdOf(part), output_index: part.index };
  switch (event.type) {
    case "start": {
      const item = toItem(part, "in_progress", options);
      const added = { type: "response.output_item.added", output_index: part.index, item };
      if (part.kind === "call") return [added];
      // The part may have grown already; its text comes in the deltas.
      const empty = toContentPart({ ...part, text: "", logprobs: [] });
      return [added, { type: "response.content_part.added", ...at, content_index: 0, part: empty }];
    }
    case "delta":
      // Its text is known once the JSON around it is complete.
      return part.call?.isCustom === true ? [] : [toDelta(event, at)];
    case "end": {
      const item = toItem(part, event.isComplete ? "completed" : "incomplete", options);
      return [...toDone(part, at), { type: "response.output_item.done", output_index: part.index, item }];
    }
  }
}

interface ItemPosition {
  readonly item_id: string;
  readonly output_index: number;
}

function toDelta({ part, text, logprobs }: Extract<PartEvent, { type: "delta" }>, at: ItemPosition): object {
  switch (part.kind) {
    case "reasoning":
      return { type: "response.reasoning_text.delta", ...at, content_index: 0, delta: text };
    case "text":
      return {
        type: "response.output_text.delta",
        ...at,
        content_index: 0,
        delta: text,
        logprobs: toEventLogprobs(logprobs),
      };
    case "call":
      return { type: "response.function_call_arguments.delta", ...at, delta: text };
  }
}

function toDone(part: AnswerPart, at: ItemPosition): readonly object[] {
  const contentDone = {
    type: "response.content_part.done",
    ...at,
    content_index: 0,
    part: part.kind === "call" ? null : toContentPart(part),
  };
  switch (part.kind) {
    case "reasoning":
      return [{ type: "response.reasoning_text.done", ...at, content_index: 0, text: part.text }, contentDone];
    case "text": {
      const logprobs = toEventLogprobs(part.logprobs);
      return [{ type: "response.output_text.done", ...at, content_index: 0, text: part.text, logprobs }, contentDone];
    }
    case "call":
      if (part.call?.isCustom === true) {
        const input = textOfCustomCall(part.text);
        return [
          { type: "response.custom_tool_call_input.delta", ...at, delta: input },
          { type: "response.custom_tool_call_input.done", ...at, input },
        ];
      }
      return [{ type: "response.function_call_arguments.done", ...at, name: part.call?.name, arguments: part.text }];
  }
}

/** Without the tokens' bytes, which only the parts of a whole answer have. */
function toEventLogprobs(logprobs: readonly DecodedTokenLogprobs[]): readonly object[] {
  return toChatLogprobs(logprobs, false).content.map(({ token, logprob, top_logprobs: top }) => ({
    token,
    logprob,
    top_logprobs: top.map((other) => ({ token: other.token, logprob: other.logprob })),
  }));
}

function toContentPart({ kind, text, logprobs }: AnswerPart): object {
  if (kind === "reasoning") return { type: "reasoning_text", text };
  return { type: "output_text", text, annotations: [], logprobs: toChatLogprobs(logprobs, false).content };
}
