/** The texts of JSON values. */
import { complement, subtract } from "./code-point-set.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { MAX_WHOLE_DIGITS } from "./number-range.ts";

/**
 * White space between the parts of a value: one space, or up to two line breaks and an indentation of up to 20
 * characters. A model cannot fill its tokens with white space, and can still indent. The rule is llama.cpp's
 * (common/json-schema-to-grammar.cpp, SPACE_RULE). Carriage returns are left out, because no model needs them.
 */
export const whitespace = rule("ws");
export const comma = separator(",");
export const colon = separator(":");

/** Characters that must be escaped in a string. */
const escaped: CodePointSet = [
  [0x00, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
];

const escapedCharacter = String.raw`[0-9A-CE-Fa-ce-f] [0-9A-Fa-f]{3} | [Dd] [0-7] [0-9A-Fa-f]{2}`;
/** Half of a pair is no character: parsers such as orjson reject it. */
const surrogatePair = String.raw`[Dd] [89ABab] [0-9A-Fa-f]{2} "\\u" [Dd] [C-Fc-f] [0-9A-Fa-f]{2}`;
/** A character as it is written in a string. */
const character = String.raw`[^\0-\x1f"\\] | "\\" (["\\/bfnrt] | "u" (${escapedCharacter} | ${surrogatePair}))`;

/**
 * Rules for values of any kind. Keys of objects may be any strings. Numbers have at most `MAX_WHOLE_DIGITS` digits before
 * the point, as many after it, and two in the exponent, so that they are never beyond double precision, which parsers
 * read as infinite, and a model cannot fill its tokens with digits.
 */
const jsonRules: ReadonlyMap<string, Expression> = readGrammar(String.raw`
  root ::= value
  value ::= object | array | string | number | boolean | null
  object ::= "{" ws (string ws ":" sp value (ws "," sp string ws ":" sp value)* ws)? "}"
  array ::= "[" ws (value (ws "," sp value)* ws)? "]"
  string ::= "\"" (${character})* "\""
  character ::= ${character}
  integer ::= "0" | "-"? [1-9] [0-9]{0,${MAX_WHOLE_DIGITS - 1}}
  number ::= "-"? ("0" | [1-9] [0-9]{0,${MAX_WHOLE_DIGITS - 1}}) ("." [0-9]{1,${MAX_WHOLE_DIGITS}})? ([eE] [+\-]? [0-9]{1,2})?
  boolean ::= "true" | "false"
  null ::= "null"
  ws ::= "" | " " | "\n" "\n"? [ \t]{0,20}
  sp ::= "" | " " | "\n" "\n"? [ \t]{0,20}
`).rules;

/** No white space but one space after a comma or colon. */
const compactRules: ReadonlyMap<string, Expression> = readGrammar('root ::= ws sp\nws ::= ""\nsp ::= " "?').rules;

/** Rules for values of any kind. `isCompact` leaves out line breaks and indentation. */
export function jsonRulesFor(isCompact: boolean): ReadonlyMap<string, Expression> {
  return isCompact ? new Map([...jsonRules, ...compactRules]) : jsonRules;
}

export function rule(name: string): Expression {
  return { kind: "rule", name };
}

export function repeat(part: Expression, min: number, max: number): Expression {
  return { kind: "repetition", part, min, max };
}

/** A constant value, without white space. */
export function constantOf(value: unknown): string {
  return JSON.stringify(value);
}

export function quoted(content: Expression): Expression {
  return sequenceOf([literalOf('"'), content, literalOf('"')]);
}

/**
 * Writes texts inside JSON strings. Mutable: a pattern may repeat a part or a set many thousands of times, and each is
 * written once.
 */
export class StringEscaper {
  readonly #sets = new Map<string, Expression>();
  readonly #escaped = new Map<Expression, Expression>();
  readonly #characters = new Map<Expression, Expression>();

  /** The texts of an expression as written inside a JSON string, with the shortest escapes where needed. */
  escape(expression: Expression): Expression {
    let escapedExpression = this.#escaped.get(expression);
    if (escapedExpression === undefined) {
      this.#escaped.set(expression, (escapedExpression = this.#escape(expression)));
    }
    return escapedExpression;
  }

  /** Like `escape`, with every character of a text by itself, as `limited` counts them. Not for rules. */
  characters(expression: Expression): Expression {
    let characters = this.#characters.get(expression);
    if (characters === undefined) this.#characters.set(expression, (characters = this.#divide(expression)));
    return characters;
  }

  #escape(expression: Expression): Expression {
    switch (expression.kind) {
      case "set": {
        const key = expression.set.join(";");
        let escapedSet = this.#sets.get(key);
        if (escapedSet === undefined) this.#sets.set(key, (escapedSet = escapeSet(expression.set)));
        return escapedSet;
      }
      case "words":
        return { kind: "words", words: expression.words.map(escapeText) };
      case "sequence":
        return sequenceOf(expression.parts.map((part) => this.escape(part)));
      case "alternatives":
        return alternativesOf(expression.options.map((option) => this.escape(option)));
      case "repetition":
      case "limited":
        return { ...expression, part: this.escape(expression.part) };
      case "rule":
        return expression;
      default:
        return expression satisfies never;
    }
  }

  #divide(expression: Expression): Expression {
    switch (expression.kind) {
      case "words": {
        const options = expression.words.map((word): Expression => {
          const parts = Array.from(word, (character) => literalOf(escapeText(character)));
          return parts.length === 0 ? literalOf("") : { kind: "sequence", parts };
        });
        return { kind: "alternatives", options };
      }
      case "sequence":
        return { kind: "sequence", parts: expression.parts.map((part) => this.characters(part)) };
      case "alternatives":
        return { kind: "alternatives", options: expression.options.map((option) => this.characters(option)) };
      case "repetition":
        return { ...expression, part: this.characters(expression.part) };
      case "set":
      case "limited":
      case "rule":
        return this.escape(expression);
      default:
        return expression satisfies never;
    }
  }
}

function escapeSet(set: CodePointSet): Expression {
  const plain = subtract(set, escaped);
  const options: Expression[] = plain.length === 0 ? [] : [{ kind: "set", set: plain }];
  const words: string[] = [];
  for (const [first, last] of subtract(set, complement(escaped)))
    for (let code = first; code <= last; code++) words.push(escapeText(String.fromCodePoint(code)));
  if (words.length > 0) options.push({ kind: "words", words });
  return options.length === 0 ? { kind: "set", set } : alternativesOf(options);
}

/** As written inside a JSON string. */
export function escapeText(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

function separator(symbol: string): Expression {
  return sequenceOf([whitespace, literalOf(symbol), rule("sp")]);
}
