/**
 * The answer of a model in parts: text, thinking and calls of tools. Every endpoint writes its own wire form from these
 * deltas.
 */
import type { DecodedTokenLogprobs, FinishReason } from "../../../engine/index.ts";
import type { Generation } from "../generations.ts";

export interface ToolCallStart {
  readonly id: string;
  readonly name: string;
  /** Only for clients that name a tool by two names. */
  readonly namespace?: string;
  /** Only for clients whose tool has a text as input: the arguments are JSON around it. */
  readonly isCustom?: boolean;
}

/** A piece of a tool call. The pieces of one call have the same index and arrive in order. */
export interface ToolCallDelta {
  /** Position of the call among the calls of its choice, from 0. */
  readonly index: number;
  /** In the first delta of a call only. */
  readonly start?: ToolCallStart;
  /** Continues the JSON text of the arguments; "" if there is nothing new. */
  readonly arguments: string;
}

/** The parts that a piece of output adds to a choice. Fields without news are left out. */
export interface ParsedDelta {
  readonly content?: string;
  readonly reasoning?: string;
  readonly toolCalls?: readonly ToolCallDelta[];
}

/** `tool_calls`: the model ended its turn after at least one call. */
export type ParsedFinishReason = FinishReason | "tool_calls";

/** An output of the engine with its text in parts. `output.text` is the text as the model wrote it. */
export interface ParsedGeneration extends Generation {
  readonly delta: ParsedDelta;
  /** Null until the last delta of the choice. */
  readonly finishReason: ParsedFinishReason | null;
  /** Tokens of thinking so far, also if deltas leave the thinking out. */
  readonly numReasoningTokens: number;
  /** Of the tokens of the answer that follows the thinking; empty if the request asks for none. */
  readonly answerLogprobs: readonly DecodedTokenLogprobs[];
}

/** A whole call. */
export interface ParsedToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text. It is incomplete if the output ended within it. */
  readonly arguments: string;
}
