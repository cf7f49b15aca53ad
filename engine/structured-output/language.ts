/** The texts that satisfy a structured output. */
import { createAssertionMeter, readAssertedTexts } from "./asserted-texts.ts";
import { hasAssertions } from "./assertion-pattern.ts";
import type { Expression, Language } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { anyJsonObject, readJsonSchema } from "./json-schema-language.ts";
import { readPattern } from "./pattern-reader.ts";
import { refuseStructuredOutput } from "./refusal.ts";
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
      return readRegex(structuredOutput.pattern);
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

function readRegex(pattern: string): Language {
  const rules = new Map<string, Expression>();
  if (!hasAssertions(pattern)) return { root: readPattern(pattern), rules };
  const bounds = { min: 0, max: Infinity };
  const meter = createAssertionMeter();
  const root = readAssertedTexts(pattern, { isWhole: true, bounds, place: "The pattern", meter, rules });
  return { root: root ?? refuseStructuredOutput("The pattern matches no text of the allowed length"), rules };
}
