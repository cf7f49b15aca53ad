/** The texts that satisfy a structured output, as our own readers understand it. */
import type { Language } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { readPattern } from "./pattern-reader.ts";
import type { StructuredOutput } from "./structured-output.ts";

/** A structured output in a form that says by itself which texts it wants; that of a schema is a grammar. */
export type LanguageSource = Extract<StructuredOutput, { readonly kind: "regex" | "choice" | "grammar" }>;

/** Throws EngineError `invalid_argument` for what is malformed or not understood. */
export function readLanguage(source: LanguageSource): Language {
  switch (source.kind) {
    case "regex":
      return { root: readPattern(source.pattern), rules: new Map() };
    case "choice":
      return { root: { kind: "words", words: source.choices }, rules: new Map() };
    case "grammar":
      return readGrammar(source.grammar);
    default:
      return source satisfies never;
  }
}
