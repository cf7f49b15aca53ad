/** The forms that a request can prescribe for its text. */
export type StructuredOutput =
  /**
   * The text is a JSON value that matches this schema, given as JSON. `isCompact` allows no white space between its parts
   * but one space after a comma or colon. Default false.
   */
  | { readonly kind: "json-schema"; readonly schema: string; readonly isCompact?: boolean }
  /** The text is any JSON object. */
  | { readonly kind: "json-object"; readonly isCompact?: boolean }
  /** The whole text matches the pattern. */
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  /** EBNF in XGrammar's dialect. The start is the rule `root`. */
  | { readonly kind: "grammar"; readonly grammar: string }
  /** Fixed text, free text and other forms, one after the other. */
  | { readonly kind: "structural"; readonly format: StructuralFormat };

/** Forms made of fixed text, free text and other forms: structural tags, and thinking before an answer. */
export type StructuralFormat =
  | { readonly type: "text"; readonly text: string }
  /** `field` is the request's field with the form, for errors. */
  | { readonly type: "form"; readonly form: StructuredOutput; readonly field?: string }
  | { readonly type: "sequence"; readonly parts: readonly StructuralFormat[] }
  | { readonly type: "alternatives"; readonly options: readonly StructuralFormat[] }
  /** `max` null is no limit. */
  | {
      readonly type: "repetition";
      readonly part: StructuralFormat;
      readonly min: number;
      readonly max: number | null;
    }
  /** Any text up to the first occurrence of the marker, and the marker. */
  | { readonly type: "text-through"; readonly marker: string }
  /** Any text in which the marker does not occur. */
  | { readonly type: "text-without"; readonly marker: string };

/**
 * The maximum size of a schema, pattern or grammar, and the maximum number of choices. Compiling takes time at least
 * proportional to the source.
 */
export const structuredOutputLimits = { sourceBytes: 256 * 1024, choices: 10_000 } as const;

/** Maximum number of characters of a structured output in a message. */
const MAX_TOLD = 80;

/** For example `regex "yes|no"`. Long texts are shortened. */
export function describeStructuredOutput(structuredOutput: StructuredOutput): string {
  switch (structuredOutput.kind) {
    case "json-object":
      return "json_object";
    case "json-schema":
      return `json ${tell(structuredOutput.schema)}`;
    case "regex":
      return `regex ${tell(JSON.stringify(structuredOutput.pattern))}`;
    case "choice":
      return `choice ${tell(JSON.stringify(structuredOutput.choices))}`;
    case "grammar":
      return `grammar ${tell(JSON.stringify(structuredOutput.grammar))}`;
    case "structural":
      return `structural ${tell(JSON.stringify(structuredOutput.format))}`;
    default:
      return structuredOutput satisfies never;
  }
}

function tell(text: string): string {
  return text.length > MAX_TOLD ? `${text.slice(0, MAX_TOLD)}…` : text;
}
