/** Formats of the user's modules, whose errors must not end a request. */
import type { OutputEvent, ToolCallFormat, ToolCallParser } from "./tool-call-format.ts";

/** A parser that throws gives the rest of its text as text. */
export function guardFormat(format: ToolCallFormat, specialTokens: readonly string[]): ToolCallFormat {
  const createCallId = format.createCallId?.bind(format);
  return {
    name: format.name,
    specialTokens,
    createParser: (tools) => guardParser(() => format.createParser(tools)),
    // Modules in JavaScript may leave it out.
    formOf: (tools, rules) => (format as Partial<ToolCallFormat>).formOf?.(tools, rules) ?? null,
    ...(createCallId && { createCallId }),
  };
}

function guardParser(create: () => ToolCallParser): ToolCallParser {
  let parser: ToolCallParser | null = null;
  let hasFailed = false;
  const attempt = (text: string, parse: (used: ToolCallParser) => readonly OutputEvent[]): readonly OutputEvent[] => {
    const asText: readonly OutputEvent[] = text === "" ? [] : [{ type: "text", text }];
    if (hasFailed) return asText;
    try {
      parser ??= create();
      return [...parse(parser)];
    } catch {
      hasFailed = true;
      return asText;
    }
  };
  return {
    append: (text) => attempt(text, (used) => used.append(text)),
    finish: () => attempt("", (used) => used.finish()),
  };
}
