/** Parses texts in pieces, and joins what comes out. */
import type { ReasoningStart, ToolDefinition } from "../../../../engine/index.ts";
import { joinDeltas, OutputParser } from "../../../../functions/generation/parsed-output/output-parser.ts";
import type { OutputParsing } from "../../../../functions/generation/parsed-output/output-parser.ts";
import type { ParsedDelta } from "../../../../functions/generation/parsed-output/parsed-delta.ts";
import type { ToolCallFormat } from "../../../../functions/generation/parsed-output/tool-call-format.ts";

export interface Parsed {
  readonly content: string;
  readonly reasoning: string;
  /** Names and the JSON texts of arguments. */
  readonly calls: readonly (readonly [string, string])[];
}

const weatherTool: ToolDefinition = {
  name: "get_weather",
  description: null,
  strict: false,
  parameters: {
    type: "object",
    properties: {
      city: { type: "string" },
      days: { type: "integer" },
      exact: { type: "boolean" },
      options: { type: "object" },
      note: { anyOf: [{ type: "string" }, { type: "null" }] },
      place: { $ref: "#/$defs/a~1b" },
    },
    $defs: { "a/b": { allOf: [{ properties: { x: { type: "number" } } }] } },
  },
};
const otherTool: ToolDefinition = { name: "stop-it", description: null, strict: false, parameters: null };

export function parsingOf(format: ToolCallFormat, parsing: Partial<OutputParsing> = {}): OutputParsing {
  return {
    toolCalls: { format, tools: [weatherTool, otherTool], maxCalls: null },
    reasoning: null,
    includesReasoning: true,
    ...parsing,
  };
}

export function parseAll(
  parsing: OutputParsing,
  pieces: readonly string[],
  start: ReasoningStart | null = null,
): Parsed {
  return joined(parseDeltas(parsing, pieces, start));
}

export function parseDeltas(
  parsing: OutputParsing,
  pieces: readonly string[],
  start: ReasoningStart | null = null,
): ParsedDelta[] {
  const parser = new OutputParser(parsing, start);
  return [...pieces.map((piece) => parser.append(piece)), parser.finish()];
}

function joined(deltas: readonly ParsedDelta[]): Parsed {
  const { content = "", reasoning = "", toolCalls = [] } = deltas.reduce(joinDeltas, {});
  const calls: [string, string][] = [];
  for (const { index, start, arguments: piece } of toolCalls) {
    if (start !== undefined) calls[index] = [start.name, ""];
    calls[index]![1] += piece;
  }
  return { content, reasoning, calls };
}
