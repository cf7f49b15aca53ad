/** How models write calls of tools into their text. A format is chosen from the chat template, or by TOOL_CALL_PARSER. */
import type { StructuredOutput, ToolDefinition } from "../../../engine/index.ts";

/** A part of the text that a parser finds, in the order of the text. */
export type OutputEvent =
  | { readonly type: "text"; readonly text: string }
  /** Starts a call. */
  | { readonly type: "call"; readonly name: string }
  /** Continues the JSON text of the arguments of the last call. */
  | { readonly type: "arguments"; readonly text: string };

/**
 * Reads the text of one choice. The events of all calls together, with adjacent texts joined, must not depend on how the
 * text is divided. Text that is no call, or a broken one, is given as text. Never throws.
 */
export interface ToolCallParser {
  append(text: string): readonly OutputEvent[];
  /** The text is complete. */
  finish(): readonly OutputEvent[];
}

export interface CallRules {
  /** `auto`: text, calls or both; `required`: calls only. */
  readonly mode: "auto" | "required";
  /** Whether more than one call may follow. */
  readonly isParallel: boolean;
  /** The request's field with the schema of a tool, for errors. */
  schemaField(tool: ToolDefinition): string;
}

export interface ToolCallFormat {
  readonly name: string;
  /** Special tokens that the parser needs to see. Texts that are no special tokens of the model have no effect. */
  readonly specialTokens: readonly string[];
  createParser(tools: readonly ToolDefinition[]): ToolCallParser;
  /**
   * The form of texts whose calls match the schemas of their tools; null if this format has none. A tool that is not
   * strict gets any JSON object in mode `auto`.
   */
  formOf(tools: readonly ToolDefinition[], rules: CallRules): StructuredOutput | null;
  /** A new id, as the chat template accepts it. Default: `call_` and 24 hexadecimal digits. */
  createCallId?(): string;
}
