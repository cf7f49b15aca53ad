/**
 * Expressions that describe a set of texts, independent of notation. Plain values. An expression may be a part of several
 * others, or of one several times, so its size as a tree may be exponential: code that walks it visits each value once.
 */
import type { CodePointSet } from "./code-point-set.ts";

export type Expression =
  /** One character of the set. */
  | { readonly kind: "set"; readonly set: CodePointSet }
  /** One of these words, which may be empty. There is at least one word. */
  | { readonly kind: "words"; readonly words: readonly string[] }
  /** One part after the other. */
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  | { readonly kind: "alternatives"; readonly options: readonly Expression[] }
  /** `max` may be Infinity. */
  | { readonly kind: "repetition"; readonly part: Expression; readonly min: number; readonly max: number }
  /** The texts of the part with at most `max` characters, of which each set and each text is one. It has no rules. */
  | { readonly kind: "limited"; readonly part: Expression; readonly max: number }
  | { readonly kind: "rule"; readonly name: string };

/** The texts of `root`. */
export interface Language {
  readonly root: Expression;
  /** Contains every rule that an expression mentions. */
  readonly rules: ReadonlyMap<string, Expression>;
}

type Words = Extract<Expression, { readonly kind: "words" }>;

/** Exactly this text. */
export function literalOf(text: string): Expression {
  return { kind: "words", words: [text] };
}

/** Merges consecutive texts into one. */
export function sequenceOf(parts: readonly Expression[]): Expression {
  const fused: Expression[] = [];
  let text = "";
  for (const part of parts) {
    if (part.kind === "words" && part.words.length === 1) {
      text += part.words[0];
      continue;
    }
    if (text !== "") fused.push(literalOf(text));
    text = "";
    fused.push(part);
  }
  if (text !== "" || fused.length === 0) fused.push(literalOf(text));
  return fused.length === 1 ? fused[0]! : { kind: "sequence", parts: fused };
}

/** Merges texts into one list, which a reader can follow in one pass. */
export function alternativesOf(options: readonly Expression[]): Expression {
  const isWords = (option: Expression): option is Words => option.kind === "words";
  const words = options.filter(isWords).flatMap((option) => option.words);
  const united: Expression[] = options.filter((option) => !isWords(option));
  if (words.length > 0) united.push({ kind: "words", words });
  return united.length === 1 ? united[0]! : { kind: "alternatives", options: united };
}

/** Maximum nesting of groups, over which readers recurse. */
export const MAX_GROUP_NESTING = 64;

/** `{n, -1}` is XGrammar's notation for a repetition without an upper bound. No two parts can match the same blank. */
const quantifierPattern = /[*+?]|\{\s*(\d+)\s*(?:(,)\s*(?:(-1|\d+)\s*)?)?\}/y;

/** Reads the quantifier of `text` at `start`, if there is one. */
export function readQuantifier(
  text: string,
  start: number,
): { readonly min: number; readonly max: number; readonly end: number } | null {
  quantifierPattern.lastIndex = start;
  const match = quantifierPattern.exec(text);
  if (match === null) return null;
  const end = quantifierPattern.lastIndex;
  const [symbol, min, comma, max] = match;
  if (symbol === "*") return { min: 0, max: Infinity, end };
  if (symbol === "+") return { min: 1, max: Infinity, end };
  if (symbol === "?") return { min: 0, max: 1, end };
  if (comma === undefined) return { min: Number(min), max: Number(min), end };
  return { min: Number(min), max: max === undefined || max === "-1" ? Infinity : Number(max), end };
}
