/** Forms made of fixed text, free text and other forms: structural tags, and thinking before an answer. */
import { EngineError } from "../contract/errors.ts";
import { complement, unite } from "./code-point-set.ts";
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { refuseEndlessRules } from "./rule-properties.ts";
import type { StructuralFormat, StructuredOutput } from "./structured-output.ts";

/** Maximum nesting, over which readers recurse. */
const MAX_DEPTH = 16;

/**
 * Checks all forms within the format with `checkForm`. Throws EngineError `invalid_argument`, also for a marker that
 * cannot be followed.
 */
export function checkStructuralFormat(
  format: StructuralFormat,
  checkForm: (form: StructuredOutput) => void,
  depth = 0,
): void {
  const check = (part: StructuralFormat): void => checkStructuralFormat(part, checkForm, depth + 1);
  if (depth > MAX_DEPTH) refuseStructuredOutput(`The format is nested more than ${MAX_DEPTH} levels deep`);
  switch (format.type) {
    case "text":
      return;
    case "form":
      return namingField(format.field, () => checkForm(format.form));
    case "sequence":
      return format.parts.forEach(check);
    case "alternatives":
      if (format.options.length === 0) refuseStructuredOutput("The format has no alternative");
      return format.options.forEach(check);
    case "repetition":
      return check(format.part);
    case "text-through":
    case "text-without":
      return checkMarker(format.marker);
    default:
      format satisfies never;
  }
}

/** Adds the field to errors of its form. */
function namingField<Result>(field: string | undefined, read: () => Result): Result {
  if (field === undefined) return read();
  try {
    return read();
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const message = `${field} cannot be enforced: ${error.message}`;
    throw new EngineError(error.code, message, { parameter: field, cause: error });
  }
}

/** @param readForm The language of a form within the format. */
export function readStructuralFormat(
  format: StructuralFormat,
  readForm: (form: StructuredOutput) => Language,
): Language {
  const rules = new Map<string, Expression>();
  let numForms = 0;
  const readWholeForm = (form: StructuredOutput): Language => {
    const language = readForm(form);
    // Beside the check of the whole format, which does not know the field.
    refuseEndlessRules(language);
    return language;
  };
  const read = (part: StructuralFormat): Expression => {
    switch (part.type) {
      case "text":
        return literalOf(part.text);
      case "form":
        return adoptLanguage(
          namingField(part.field, () => readWholeForm(part.form)),
          `${numForms++}:`,
          rules,
        );
      case "sequence":
        return sequenceOf(part.parts.map(read));
      case "alternatives":
        return alternativesOf(part.options.map(read));
      case "repetition":
        return { kind: "repetition", part: read(part.part), min: part.min, max: part.max ?? Infinity };
      case "text-through":
        return textThrough(part.marker);
      case "text-without":
        return textWithout(part.marker);
      default:
        return part satisfies never;
    }
  };
  return { root: read(format), rules };
}

/** Puts the rules of a language among others, under names of their own, and returns its root. */
function adoptLanguage(language: Language, prefix: string, rules: Map<string, Expression>): Expression {
  const renamed = new Map<Expression, Expression>();
  const rename = (expression: Expression): Expression => {
    let known = renamed.get(expression);
    if (known === undefined) renamed.set(expression, (known = renameParts(expression)));
    return known;
  };
  const renameParts = (expression: Expression): Expression => {
    switch (expression.kind) {
      case "set":
      case "words":
        return expression;
      case "sequence":
        return { kind: "sequence", parts: expression.parts.map(rename) };
      case "alternatives":
        return { kind: "alternatives", options: expression.options.map(rename) };
      case "repetition":
      case "limited":
        return { ...expression, part: rename(expression.part) };
      case "rule":
        return { kind: "rule", name: prefix + expression.name };
      default:
        return expression satisfies never;
    }
  };
  for (const [name, body] of language.rules) rules.set(prefix + name, rename(body));
  return rename(language.root);
}

/** The first character must be unique, so that a begun marker restarts only at its first character. */
function checkMarker(marker: string): void {
  const characters = Array.from(marker);
  if (characters.length < 2 || characters.lastIndexOf(characters[0]!) > 0) {
    refuseStructuredOutput(
      `The marker ${JSON.stringify(marker)} must have two characters or more, and its first only once`,
    );
  }
}

/**
 * In states of an automaton that counts the characters of the marker seen: back at 0 after any other character, at 1
 * after the marker's first character. A text is a series of blocks that end in state 0.
 */
function textThrough(marker: string): Expression {
  const { blocks, begun, rest } = partsOf(marker);
  return sequenceOf([blocks, begun, literalOf(rest.join(""))]);
}

function textWithout(marker: string): Expression {
  const { blocks, begun, rest } = partsOf(marker);
  const beginnings = rest.map((_, length) => rest.slice(0, length).join(""));
  const end = sequenceOf([begun, { kind: "words", words: beginnings }]);
  return sequenceOf([blocks, { kind: "repetition", part: end, min: 0, max: 1 }]);
}

function partsOf(marker: string): {
  /** From state 0 to state 0. */
  readonly blocks: Expression;
  /** From state 0 to state 1. */
  readonly begun: Expression;
  /** The characters from state 1 to the end of the marker. */
  readonly rest: readonly string[];
} {
  const [first, ...rest] = Array.from(marker) as [string, ...string[]];
  // Begins again after each of the states 1 to n - 1.
  const restart = sequenceOf([
    { kind: "words", words: rest.map((_, length) => rest.slice(0, length).join("")) },
    literalOf(first),
  ]);
  const begun = sequenceOf([literalOf(first), { kind: "repetition", part: restart, min: 0, max: Infinity }]);
  const exits = rest.map((next, length) =>
    sequenceOf([literalOf(rest.slice(0, length).join("")), anyBut(first, next)]),
  );
  const block = alternativesOf([anyBut(first), sequenceOf([begun, alternativesOf(exits)])]);
  return { blocks: { kind: "repetition", part: block, min: 0, max: Infinity }, begun, rest };
}

function anyBut(...characters: readonly string[]): Expression {
  const points = characters.map((character) => character.codePointAt(0)!);
  return { kind: "set", set: complement(unite(points.map((point) => [point, point] as const))) };
}
