/** The forms that a request can prescribe for its text, and the checks before compilation. */
import { checkJsonSchema } from "./json-schema.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { checkStructuralFormat } from "./structural-format.ts";
import type { StructuralFormat } from "./structural-format.ts";

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

/**
 * The maximum size of a schema, pattern or grammar, and the maximum number of choices. Compiling takes time at least
 * proportional to the source.
 */
export const structuredOutputLimits = { sourceBytes: 256 * 1024, choices: 10_000 } as const;
/** Limit of a structural format with all its forms: the schemas of a few hundred tools. */
const MAX_FORMAT_BYTES = 4 * structuredOutputLimits.sourceBytes;
const { sourceBytes: maxSourceBytes, choices: maxChoices } = structuredOutputLimits;

/**
 * Throws EngineError `invalid_argument` for a source that is empty, too large or too deep, or a JSON Schema that is not
 * fully enforced. Errors in grammars and patterns are found when they are compiled.
 */
export function checkStructuredOutput(structuredOutput: StructuredOutput): void {
  switch (structuredOutput.kind) {
    case "json-object":
      return;
    case "json-schema":
      checkText("json", structuredOutput.schema);
      return checkJsonSchema(structuredOutput.schema);
    case "regex":
      return checkText("regex", structuredOutput.pattern);
    case "choice":
      return checkChoices(structuredOutput.choices);
    case "grammar":
      return checkText("grammar", structuredOutput.grammar);
    case "structural":
      return checkFormat(structuredOutput.format);
    default:
      structuredOutput satisfies never;
  }
}

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

function checkText(name: string, text: string): void {
  if (text.trim() === "") refuseStructuredOutput(`${name} cannot be an empty string`);
  const numBytes = Buffer.byteLength(text);
  if (numBytes > maxSourceBytes) {
    refuseStructuredOutput(`${name} may have at most ${maxSourceBytes} bytes, got ${numBytes}`);
  }
  if (!text.isWellFormed()) refuseStructuredOutput(`${name} contains half of a surrogate pair`);
  if (text.includes("\0")) refuseStructuredOutput(`${name} contains a NUL character`);
}

function checkFormat(format: StructuralFormat): void {
  const numBytes = Buffer.byteLength(JSON.stringify(format));
  if (numBytes > MAX_FORMAT_BYTES) {
    refuseStructuredOutput(`A structural format may have at most ${MAX_FORMAT_BYTES} bytes, got ${numBytes}`);
  }
  checkStructuralFormat(format, checkStructuredOutput);
}

function checkChoices(choices: readonly string[]): void {
  if (choices.length === 0) refuseStructuredOutput("choice cannot be an empty list");
  if (choices.length > maxChoices) {
    refuseStructuredOutput(`choice may have at most ${maxChoices} entries, got ${choices.length}`);
  }
  let numBytes = 0;
  for (const choice of choices) {
    if (choice === "") refuseStructuredOutput("choice cannot contain an empty string");
    if (!choice.isWellFormed()) refuseStructuredOutput("choice contains half of a surrogate pair");
    if (choice.includes("\0")) refuseStructuredOutput("choice contains a NUL character");
    numBytes += Buffer.byteLength(choice);
  }
  if (numBytes > maxSourceBytes) {
    refuseStructuredOutput(`choice may have at most ${maxSourceBytes} bytes in total, got ${numBytes}`);
  }
}
