/** Forms of texts with tool calls, for the grammar engine: free text, and arguments that match the tools' schemas. */
import type { StructuralFormat, StructuredOutput, ToolDefinition } from "../../../../engine/index.ts";
import type { CallRules } from "../tool-call-format.ts";

interface CallSpelling {
  /** The text of a call before its arguments. */
  readonly before: (name: string) => string;
  /** The text of a call after its arguments. */
  readonly after: string;
}

const noArguments = { type: "object", properties: {}, additionalProperties: false };
const anyArguments: StructuredOutput = { kind: "json-object" };

/** The JSON Schema of a tool's arguments. */
function schemaOf({ parameters }: ToolDefinition): StructuredOutput {
  // Without it, a schema may match values that are no objects.
  const schema = parameters === null ? noArguments : { type: "object", ...parameters };
  return { kind: "json-schema", schema: JSON.stringify(schema) };
}

/** Calls that each start with a marker, among free text in mode `auto`. */
export function taggedCalls(
  tools: readonly ToolDefinition[],
  rules: CallRules,
  spelling: CallSpelling & { readonly trigger: string; readonly between: string },
): StructuredOutput {
  const { mode, isParallel } = rules;
  const { trigger, between } = spelling;
  const call = oneCall(tools, rules, spelling);
  const max = isParallel ? null : 1;
  if (mode === "required") {
    const further = sequence(text(between + trigger), call);
    const rest: readonly StructuralFormat[] = isParallel ? [repetition(further, 0, null)] : [];
    return structural(sequence(text(trigger), call, ...rest));
  }
  const textThenCall = sequence({ type: "text-through", marker: trigger }, call);
  return structural(sequence(repetition(textThenCall, 0, max), { type: "text-without", marker: trigger }));
}

/** A JSON list of calls after a marker, and free text before it in mode `auto`. */
export function listedCalls(
  tools: readonly ToolDefinition[],
  rules: CallRules,
  spelling: CallSpelling & { readonly start: string; readonly end?: string },
): StructuredOutput {
  const { mode, isParallel } = rules;
  const { start, end = "" } = spelling;
  const call = oneCall(tools, rules, spelling);
  const further = isParallel ? [repetition(sequence(text(", "), call), 0, null)] : [];
  const list = sequence(text("["), call, ...further, text(`]${end}`));
  if (mode === "required") return structural(sequence(text(start), list));
  return structural({
    type: "alternatives",
    options: [sequence({ type: "text-through", marker: start }, list), { type: "text-without", marker: start }],
  });
}

/** Calls from the first character on, or a text that starts with another one in mode `auto`. */
export function leadingCalls(
  tools: readonly ToolDefinition[],
  rules: CallRules,
  spelling: CallSpelling & { readonly between: string; readonly otherText: string },
): StructuredOutput {
  const { mode, isParallel } = rules;
  const call = oneCall(tools, rules, spelling);
  const further = isParallel ? [repetition(sequence(text(spelling.between), call), 0, null)] : [];
  const calls = sequence(call, ...further);
  if (mode === "required") return structural(calls);
  const other: StructuralFormat = { type: "form", form: { kind: "regex", pattern: spelling.otherText } };
  return structural({ type: "alternatives", options: [calls, other, text("")] });
}

function oneCall(tools: readonly ToolDefinition[], rules: CallRules, spelling: CallSpelling): StructuralFormat {
  return {
    type: "alternatives",
    options: tools.map((tool) => {
      const form = rules.mode === "required" || tool.strict ? schemaOf(tool) : anyArguments;
      return sequence(
        text(spelling.before(tool.name)),
        { type: "form", form, field: rules.schemaField(tool) },
        text(spelling.after),
      );
    }),
  };
}

function structural(format: StructuralFormat): StructuredOutput {
  return { kind: "structural", format };
}

function text(value: string): StructuralFormat {
  return { type: "text", text: value };
}

function sequence(...parts: readonly StructuralFormat[]): StructuralFormat {
  return { type: "sequence", parts };
}

function repetition(part: StructuralFormat, min: number, max: number | null): StructuralFormat {
  return { type: "repetition", part, min, max };
}
