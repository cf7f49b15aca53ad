/** Parses the text of one choice into deltas: thinking first, then text and calls. */
import { randomUUID } from "node:crypto";

import type { ReasoningMarkers, ReasoningStart, ToolDefinition } from "../../../engine/index.ts";
import { parseBoundedJson } from "../../http/bounded-json.ts";
import { AnswerUnwrapper } from "./answer-tags.ts";
import type { AnswerTags } from "./answer-tags.ts";
import type { ParsedDelta, ToolCallDelta } from "./parsed-delta.ts";
import { ReasoningSplitter } from "./reasoning-splitter.ts";
import type { AnswerPhase } from "./reasoning-splitter.ts";
import type { OutputEvent, ToolCallFormat, ToolCallParser } from "./tool-call-format.ts";

/** How the text of an answer is parsed. */
export interface OutputParsing {
  /** Null for an answer without calls. */
  readonly toolCalls: {
    readonly format: ToolCallFormat;
    readonly tools: readonly ToolDefinition[];
    /** Calls after the last allowed one are left out; null for any number. */
    readonly maxCalls: number | null;
  } | null;
  /** Null for a model that does not mark its thinking. */
  readonly reasoning: (ReasoningMarkers & { readonly answer?: AnswerTags }) | null;
  /** Whether deltas contain the thinking. */
  readonly includesReasoning: boolean;
}

/** Digits of the ids that OpenAI gives to calls. */
const CALL_ID_LENGTH = 24;

/** Mutable. */
export class OutputParser {
  readonly #parsing: OutputParsing;
  readonly #splitter: ReasoningSplitter | null;
  readonly #answer: AnswerUnwrapper | null;
  readonly #calls: ToolCallParser | null;
  #numCalls = 0;
  #isThinking = false;
  /** Pieces of the last call's arguments. */
  #argumentPieces: string[] = [];

  /** @param start Where the output starts; null for a model that does not mark its thinking. */
  constructor(parsing: OutputParsing, start: ReasoningStart | null) {
    const { reasoning, toolCalls } = parsing;
    this.#parsing = parsing;
    this.#splitter = reasoning === null ? null : new ReasoningSplitter(reasoning, start ?? "before");
    this.#answer = reasoning?.answer === undefined ? null : new AnswerUnwrapper(reasoning.answer);
    this.#calls = toolCalls === null ? null : toolCalls.format.createParser(toolCalls.tools);
  }

  /** Whether the answer has a call so far. */
  get hasCalls(): boolean {
    return this.#numCalls > 0;
  }

  /** Whether the latest text belongs to the thinking, its end marker included. */
  get isThinking(): boolean {
    return this.#isThinking;
  }

  /** See `ReasoningSplitter`. */
  get phase(): AnswerPhase {
    return this.#splitter?.phase ?? "answer";
  }

  /** Whether the arguments of the last call are whole. */
  hasWholeCall(): boolean {
    return parseBoundedJson(this.#argumentPieces.join("")).kind === "parsed";
  }

  append(text: string): ParsedDelta {
    if (text === "") return {};
    return this.#parse(this.#splitter?.append(text) ?? { reasoning: "", content: text }, false);
  }

  /** The text is complete. */
  finish(): ParsedDelta {
    return this.#parse(this.#splitter?.finish() ?? { reasoning: "", content: "" }, true);
  }

  #parse(
    { reasoning, content: tagged }: { readonly reasoning: string; readonly content: string },
    isEnd: boolean,
  ): ParsedDelta {
    let content = this.#answer === null || tagged === "" ? tagged : this.#answer.append(tagged);
    if (isEnd) content += this.#answer?.finish() ?? "";
    const events: OutputEvent[] = [];
    if (this.#calls === null) events.push({ type: "text", text: content });
    else {
      if (content !== "") events.push(...this.#calls.append(content));
      if (isEnd) events.push(...this.#calls.finish());
    }
    this.#isThinking = reasoning !== "" || (this.#isThinking && this.phase === "thinking");
    return this.#toDelta(this.#parsing.includesReasoning ? reasoning : "", events);
  }

  #toDelta(reasoning: string, events: readonly OutputEvent[]): ParsedDelta {
    let content = "";
    const toolCalls: ToolCallDelta[] = [];
    for (const event of events) {
      if (event.type === "text") {
        content += event.text;
        continue;
      }
      if (event.type === "call") this.#numCalls += 1;
      if (this.#isBeyondLimit) continue;
      const index = this.#numCalls - 1;
      if (event.type === "call") {
        toolCalls.push({ index, start: { id: this.#createId(), name: event.name }, arguments: "" });
        this.#argumentPieces = [];
        continue;
      }
      this.#argumentPieces.push(event.text);
      const last = toolCalls.at(-1);
      if (last?.index === index) toolCalls.splice(-1, 1, { ...last, arguments: last.arguments + event.text });
      else toolCalls.push({ index, arguments: event.text });
    }
    return {
      ...(content !== "" && { content }),
      ...(reasoning !== "" && { reasoning }),
      ...(toolCalls.length > 0 && { toolCalls }),
    };
  }

  get #isBeyondLimit(): boolean {
    const maxCalls = this.#parsing.toolCalls?.maxCalls ?? null;
    return maxCalls !== null && this.#numCalls > maxCalls;
  }

  #createId(): string {
    return (
      this.#parsing.toolCalls?.format.createCallId?.() ??
      `call_${randomUUID().replaceAll("-", "").slice(0, CALL_ID_LENGTH)}`
    );
  }
}

/** One delta with what both say, the first one first. */
export function joinDeltas(first: ParsedDelta, second: ParsedDelta): ParsedDelta {
  const content = (first.content ?? "") + (second.content ?? "");
  const reasoning = (first.reasoning ?? "") + (second.reasoning ?? "");
  const toolCalls = [...(first.toolCalls ?? []), ...(second.toolCalls ?? [])];
  return {
    ...(content !== "" && { content }),
    ...(reasoning !== "" && { reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
  };
}
