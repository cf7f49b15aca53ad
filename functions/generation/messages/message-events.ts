/** Content blocks of a message and the events that stream them. */
import { parseArguments } from "../parse-arguments.ts";
import type { AnswerPart, PartEvent } from "../parsed-output/answer-parts.ts";

/**
 * It has a meaning only for Anthropic's models. But clients leave out a block of thinking without a signature when they
 * send the answer back, and some show nothing of such an answer.
 */
const signature = Buffer.from("unsigned").toString("base64");

/** A block of `content`. */
export function toBlock(part: AnswerPart): object {
  switch (part.kind) {
    case "reasoning":
      return { type: "thinking", thinking: part.text, signature };
    case "text":
      return { type: "text", text: part.text, citations: null };
    case "call":
      return toToolUse(part, inputOf(part.text));
  }
}

function toToolUse({ call }: AnswerPart, input: object): object {
  return { type: "tool_use", id: call?.id, name: call?.name, input, caller: { type: "direct" } };
}

/** Arguments that were cut off become an empty object: the block has no place for a text. */
function inputOf(text: string): object {
  const parsed = parseArguments(text);
  const { value } = parsed.kind === "parsed" ? parsed : { value: null };
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

export function toBlockEvents(event: PartEvent): readonly object[] {
  const { part } = event;
  const { index } = part;
  switch (event.type) {
    case "start": {
      // The part may have grown already; its text comes in the deltas, and the signature in the last one.
      const block = part.kind === "call" ? toToolUse(part, {}) : toBlock({ ...part, text: "" });
      const unsigned = part.kind === "reasoning" ? { ...block, signature: "" } : block;
      return [{ type: "content_block_start", index, content_block: unsigned }];
    }
    case "delta":
      return [{ type: "content_block_delta", index, delta: toDelta(part.kind, event.text) }];
    case "end": {
      const stop = { type: "content_block_stop", index };
      if (part.kind !== "reasoning") return [stop];
      return [{ type: "content_block_delta", index, delta: { type: "signature_delta", signature } }, stop];
    }
  }
}

function toDelta(kind: AnswerPart["kind"], text: string): object {
  switch (kind) {
    case "reasoning":
      return { type: "thinking_delta", thinking: text };
    case "text":
      return { type: "text_delta", text };
    case "call":
      return { type: "input_json_delta", partial_json: text };
  }
}
