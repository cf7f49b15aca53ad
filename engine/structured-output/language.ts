/** The texts that satisfy a structured output. */
import type { Language } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { anyJsonObject, readJsonSchema } from "./json-schema-language.ts";
import { readPattern } from "./pattern-reader.ts";
import { readStructuralFormat } from "./structural-format.ts";
import type { StructuredOutput } from "./structured-output.ts";

/** Throws EngineError `invalid_argument` for a malformed or unsupported structured output. */
export function readLanguage(structuredOutput: StructuredOutput): Language {
  switch (structuredOutput.kind) {
    case "json-object":
      return anyJsonObject(structuredOutput.isCompact);
    case "json-schema":
      return readJsonSchema(structuredOutput.schema, structuredOutput.isCompact);
    case "regex":
      return { root: readPattern(structuredOutput.pattern), rules: new Map() };
    case "choice":
      return { root: { kind: "words", words: structuredOutput.choices }, rules: new Map() };
    case "grammar":
      return readGrammar(structuredOutput.grammar);
    case "structural":
      return readStructuralFormat(structuredOutput.format, readLanguage);
    default:
      return structuredOutput satisfies never;
  }
}
