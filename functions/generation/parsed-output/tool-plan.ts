/** Derives from a request's tools the form that the engine enforces and the parser of the text. */
import type { StructuredOutput, ToolDefinition } from "../../../engine/index.ts";
import { hermesFormat } from "./formats/hermes.ts";
import type { OutputParsing } from "./output-parser.ts";
import type { CallRules, ToolCallFormat } from "./tool-call-format.ts";

export interface ToolRequest {
  readonly tools: readonly ToolDefinition[];
  /** `named`: exactly one call of this tool. */
  readonly choice: "auto" | "none" | "required" | { readonly named: string };
  readonly isParallel: boolean;
  /** The form of an answer without calls; null for any text. Not with calls that are required. */
  readonly answerForm: StructuredOutput | null;
  /** See `CallRules`. */
  schemaField(tool: ToolDefinition): string;
}

export interface ToolPlan {
  readonly parsing: NonNullable<OutputParsing["toolCalls"]>;
  /** Null for a model that is free to write anything. */
  readonly structuredOutput: StructuredOutput | null;
}

/** A strict tool in a format that cannot be enforced. */
export class UnenforceableTool extends Error {
  readonly tool: ToolDefinition;

  constructor(tool: ToolDefinition, format: ToolCallFormat) {
    super(`cannot be enforced: the model's format of calls (${format.name}) has no grammar for every JSON Schema`);
    this.tool = tool;
  }
}

/**
 * Null if the model gets no tools. Required calls have the form of the model's format, or of Hermes' if that has none.
 * Throws UnenforceableTool.
 */
export function planTools(request: ToolRequest, format: ToolCallFormat): ToolPlan | null {
  const { tools, choice, isParallel, answerForm } = request;
  if (tools.length === 0 || choice === "none") return null;
  const isSingle = !isParallel || typeof choice === "object";
  const rulesOf = (mode: CallRules["mode"]): CallRules => ({
    mode,
    isParallel: !isSingle,
    schemaField: (tool) => request.schemaField(tool),
  });
  const planWith = (structuredOutput: StructuredOutput | null, used = format): ToolPlan => ({
    parsing: { format: used, tools, maxCalls: isSingle ? 1 : null },
    structuredOutput,
  });
  if (choice !== "auto") {
    const callable = typeof choice === "object" ? tools.filter(({ name }) => name === choice.named) : tools;
    const form = format.formOf(callable, rulesOf("required"));
    return form === null ? planWith(hermesFormat.formOf(callable, rulesOf("required")), hermesFormat) : planWith(form);
  }
  if (answerForm !== null) {
    const calls = format.formOf(tools, rulesOf("required"));
    // A format without a grammar leaves only the answer.
    return planWith(calls === null ? answerForm : eitherOf(calls, answerForm));
  }
  const strictTool = tools.find(({ strict }) => strict);
  if (strictTool === undefined) return planWith(null);
  const form = format.formOf(tools, rulesOf("auto"));
  if (form === null) throw new UnenforceableTool(strictTool, format);
  return planWith(form);
}

function eitherOf(...forms: readonly StructuredOutput[]): StructuredOutput {
  return {
    kind: "structural",
    format: { type: "alternatives", options: forms.map((form) => ({ type: "form", form })) },
  };
}
