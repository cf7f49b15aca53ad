/** An answer as a list of parts: thinking, texts and calls, for endpoints whose answers are such lists. */
import { randomUUID } from "node:crypto";

import type { DecodedTokenLogprobs } from "../../../engine/index.ts";
import type { ParsedGeneration, ToolCallDelta, ToolCallStart } from "./parsed-delta.ts";

/** Mutable until its `end`. */
export interface AnswerPart {
  /** Random: 32 hexadecimal digits. */
  readonly id: string;
  /** Position among the parts. */
  readonly index: number;
  readonly kind: "reasoning" | "text" | "call";
  /** Set for a call. */
  readonly call: ToolCallStart | null;
  /** So far. For a call, the JSON text of its arguments. */
  text: string;
  /** Logprobs of the tokens of a text; empty if the request asks for none. */
  readonly logprobs: DecodedTokenLogprobs[];
}

export type PartEvent =
  | { readonly type: "start"; readonly part: AnswerPart }
  | {
      readonly type: "delta";
      readonly part: AnswerPart;
      readonly text: string;
      readonly logprobs: readonly DecodedTokenLogprobs[];
    }
  /** `isComplete` is false for the last part of an answer that was cut off. */
  | { readonly type: "end"; readonly part: AnswerPart; readonly isComplete: boolean };

/** Collects the parts of one choice. Mutable. */
export class AnswerParts {
  readonly parts: AnswerPart[] = [];
  /** The last part, while it may grow. */
  #open: AnswerPart | null = null;
  /** White space that is a text only if more text follows: models write line breaks around thinking and calls. */
  #heldSpace = "";
  #heldLogprobs: DecodedTokenLogprobs[] = [];
  #numReasoningTokens = 0;

  /** Tokens of thinking so far. */
  get numReasoningTokens(): number {
    return this.#numReasoningTokens;
  }

  append({ delta, numReasoningTokens, answerLogprobs }: ParsedGeneration): readonly PartEvent[] {
    const events: PartEvent[] = [];
    this.#numReasoningTokens = numReasoningTokens;
    const { reasoning = "", content = "", toolCalls = [] } = delta;
    // Tokens that say nothing after a call are its end.
    const isOfCall = toolCalls.length > 0 || (content === "" && this.#open?.kind === "call");
    if (!isOfCall) this.#heldLogprobs.push(...answerLogprobs);
    if (reasoning !== "") this.#appendTo("reasoning", reasoning, events);
    if (content !== "") this.#appendText(content, events);
    for (const call of toolCalls) this.#appendCall(call, events);
    return events;
  }

  /** The answer is over. It always has a part. */
  finish(isComplete: boolean): readonly PartEvent[] {
    const events: PartEvent[] = [];
    if (this.parts.length === 0) this.#appendTo("text", this.#heldSpace, events);
    this.#close(isComplete, events);
    return events;
  }

  #appendText(text: string, events: PartEvent[]): void {
    this.#heldSpace += text;
    if (this.#open?.kind !== "text" && this.#heldSpace.trim() === "") return;
    const held = this.#heldSpace;
    this.#heldSpace = "";
    this.#appendTo("text", held, events);
  }

  #appendCall({ start, arguments: text }: ToolCallDelta, events: PartEvent[]): void {
    if (start !== undefined) this.#start("call", start, events);
    if (text !== "" && this.#open?.kind === "call") this.#grow(this.#open, text, events);
  }

  #appendTo(kind: "reasoning" | "text", text: string, events: PartEvent[]): void {
    const part = this.#open?.kind === kind ? this.#open : this.#start(kind, null, events);
    if (text !== "") this.#grow(part, text, events);
  }

  #grow(part: AnswerPart, text: string, events: PartEvent[]): void {
    const logprobs = part.kind === "text" ? this.#heldLogprobs.splice(0) : [];
    part.text += text;
    part.logprobs.push(...logprobs);
    events.push({ type: "delta", part, text, logprobs });
  }

  #start(kind: AnswerPart["kind"], call: AnswerPart["call"], events: PartEvent[]): AnswerPart {
    this.#close(true, events);
    this.#heldSpace = "";
    if (kind !== "text") this.#heldLogprobs = [];
    const id = randomUUID().replaceAll("-", "");
    const part: AnswerPart = { id, index: this.parts.length, kind, call, text: "", logprobs: [] };
    this.parts.push(part);
    this.#open = part;
    events.push({ type: "start", part });
    return part;
  }

  #close(isComplete: boolean, events: PartEvent[]): void {
    if (this.#open !== null) events.push({ type: "end", part: this.#open, isComplete });
    this.#open = null;
  }
}
