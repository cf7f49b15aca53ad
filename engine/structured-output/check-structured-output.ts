/** The checks of a prescribed form before it is compiled. */
import { shown } from "../excerpt.ts";
import { checkJsonSchema } from "./json-schema.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { checkStructuralFormat } from "./structural-format.ts";
import { structuredOutputLimits } from "./structured-output.ts";
import type { StructuralFormat, StructuredOutput } from "./structured-output.ts";

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
      return refuseKind(structuredOutput);
  }
}

/** For callers in JavaScript, which no compiler checks. */
function refuseKind(structuredOutput: never): never {
  const { kind } = structuredOutput as { readonly kind?: unknown };
  const kinds = '"json-schema", "json-object", "regex", "choice", "grammar" or "structural"';
  return refuseStructuredOutput(`The kind of the structured output is ${shown(kind)}; expected ${kinds}`);
}

function requireText(name: string, text: unknown): void {
  if (typeof text !== "string") refuseStructuredOutput(`${name} must be a text, got ${shown(text)}`);
}

function checkText(name: string, text: string): void {
  requireText(name, text);
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
  if (!Array.isArray(choices)) refuseStructuredOutput(`choice must be a list of texts, got ${shown(choices)}`);
  if (choices.length === 0) refuseStructuredOutput("choice cannot be an empty list");
  if (choices.length > maxChoices) {
    refuseStructuredOutput(`choice may have at most ${maxChoices} entries, got ${choices.length}`);
  }
  let numBytes = 0;
  for (const choice of choices) {
    requireText("Each choice", choice);
    if (choice === "") refuseStructuredOutput("choice cannot contain an empty string");
    if (!choice.isWellFormed()) refuseStructuredOutput("choice contains half of a surrogate pair");
    if (choice.includes("\0")) refuseStructuredOutput("choice contains a NUL character");
    numBytes += Buffer.byteLength(choice);
  }
  if (numBytes > maxSourceBytes) {
    refuseStructuredOutput(`choice may have at most ${maxSourceBytes} bytes in total, got ${numBytes}`);
  }
}
