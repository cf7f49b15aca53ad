/** Spells patterns and grammars so that XGrammar reads every set of characters in them right. */
import { anyButLineEnds, readBracketExpression, readEscape } from "./bracket-expression.ts";
import type { ReadSet } from "./bracket-expression.ts";
import { spell, spellSet, subtract } from "./code-point-set.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/** Characters that a JSON string has to escape: XGrammar puts what a pattern matches between the quotes as it is. */
const escapedInJson: CodePointSet = [
  [0x00, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
];
/** Escapes of sets; the others are literals or no characters at all. */
const SET_ESCAPE = /[dDwWsS]/;

export interface PatternUse {
  /** Whether what matches stands in a JSON string: sets then leave out what would have to be escaped there. */
  readonly isInJson: boolean;
}

/** The pattern in XGrammar's spelling. Throws EngineError `invalid_argument` for what it cannot be told. */
export function toEnginePattern(pattern: string, { isInJson }: PatternUse): string {
  let spelled = "";
  for (let index = 0; index < pattern.length;) {
    const part = readPart(pattern, index);
    const source = pattern.slice(index, part.end);
    const matched = part.kind === "other" ? [] : isInJson ? subtract(part.set, escapedInJson) : part.set;
    if (part.kind === "set") spelled += spellInPattern(matched, source);
    else if (part.kind === "literal" && matched.length === 0) refuseEmpty(source);
    // XGrammar reads as many digits after \x as there are.
    else if (part.kind === "literal" && source.startsWith("\\")) spelled += spell(part.set[0][0]);
    else spelled += source;
    index = part.end;
  }
  // XGrammar puts quotes before and behind what stands here, which alternatives would share out between them.
  return isInJson && spelled.includes("|") ? `(?:${spelled})` : spelled;
}

type PatternPart =
  | ({ readonly kind: "set" | "literal" } & ReadSet)
  /** Parts of the syntax, and what only XGrammar can tell to be none. */
  | { readonly kind: "other"; readonly end: number };

function readPart(pattern: string, start: number): PatternPart {
  const character = pattern[start];
  if (character === ".") return { kind: "set", set: anyButLineEnds, end: start + 1 };
  if (character === "[") {
    const read = readBracketExpression(pattern, start);
    return read === null ? { kind: "other", end: start + 1 } : { kind: "set", ...read };
  }
  if (character === "\\") {
    const read = readEscape(pattern, start);
    if (read === null) return { kind: "other", end: Math.min(start + 2, pattern.length) };
    return { kind: SET_ESCAPE.test(pattern[start + 1]) ? "set" : "literal", ...read };
  }
  const code = pattern.charCodeAt(start);
  return { kind: "literal", set: [[code, code]], end: start + 1 };
}

function spellInPattern(set: CodePointSet, source: string): string {
  if (set.length === 0) return refuseEmpty(source);
  const spelling = spellSet(set);
  switch (spelling.kind) {
    case "class":
      return spelling.text;
    case "class-or-one-of":
      return `(?:${[...spelling.characters, ...(spelling.text === "" ? [] : [spelling.text])].join("|")})`;
    case "none":
      return refuseSet(source);
    default:
      return spelling satisfies never;
  }
}

/** String, comment or bracket expression of a grammar; within them, what a backslash escapes. */
const GRAMMAR_PART = /"(?:[^"\\\n]|\\.)*"|#[^\n]*|\[/g;

/** The grammar in XGrammar's spelling. Throws EngineError `invalid_argument` for what it cannot be told. */
export function toEngineGrammar(grammar: string): string {
  let spelled = "";
  let end = 0;
  GRAMMAR_PART.lastIndex = 0;
  for (let match = GRAMMAR_PART.exec(grammar); match !== null; match = GRAMMAR_PART.exec(grammar)) {
    if (match[0] !== "[") continue;
    const read = readBracketExpression(grammar, match.index);
    if (read === null) continue;
    spelled += grammar.slice(end, match.index) + spellInGrammar(read.set, grammar.slice(match.index, read.end));
    end = read.end;
    GRAMMAR_PART.lastIndex = end;
  }
  return spelled + grammar.slice(end);
}

function spellInGrammar(set: CodePointSet, source: string): string {
  if (set.length === 0) return refuseEmpty(source);
  const spelling = spellSet(set);
  switch (spelling.kind) {
    case "class":
      return spelling.text;
    case "class-or-one-of": {
      const literals = spelling.characters.map((character) => `"${character}"`);
      return `(${[...literals, ...(spelling.text === "" ? [] : [spelling.text])].join(" | ")})`;
    }
    case "none":
      return refuseSet(source);
    default:
      return spelling satisfies never;
  }
}

function refuseEmpty(source: string): never {
  return refuseStructuredOutput(
    `Nothing can match ${source}; patterns of JSON strings cannot ask for quotes, backslashes or control characters`,
  );
}

function refuseSet(source: string): never {
  return refuseStructuredOutput(
    `The set ${source} is not supported: of the characters past ASCII it may contain all, or at most 256`,
  );
}
