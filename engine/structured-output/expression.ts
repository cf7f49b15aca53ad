/** What a text may look like, independent of how that is written down. Plain values. */
import type { CodePointSet } from "./code-point-set.ts";

export type Expression =
  /** One character of the set. */
  | { readonly kind: "set"; readonly set: CodePointSet }
  /** Exactly this, which may be empty. */
  | { readonly kind: "literal"; readonly text: string }
  /** One after the other; none is the empty text. */
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  | { readonly kind: "alternatives"; readonly options: readonly Expression[] }
  /** `max` may be Infinity. */
  | { readonly kind: "repetition"; readonly part: Expression; readonly min: number; readonly max: number }
  | { readonly kind: "rule"; readonly name: string };

/** The texts of `root`. */
export interface Language {
  readonly root: Expression;
  /** Has every rule that an expression names. */
  readonly rules: ReadonlyMap<string, Expression>;
}

export function sequenceOf(parts: readonly Expression[]): Expression {
  return parts.length === 1 ? parts[0] : { kind: "sequence", parts };
}

export function alternativesOf(options: readonly Expression[]): Expression {
  return options.length === 1 ? options[0] : { kind: "alternatives", options };
}

/** XGrammar prints `{n, -1}` for a repetition without an upper bound. */
const QUANTIFIER = /[*+?]|\{\s*(\d+)\s*(?:(,)\s*(-1|\d+)?\s*)?\}/y;

/** `text` begins with a quantifier at `start`, or there is none. */
export function readQuantifier(
  text: string,
  start: number,
): { readonly min: number; readonly max: number; readonly end: number } | null {
  QUANTIFIER.lastIndex = start;
  const match = QUANTIFIER.exec(text);
  if (match === null) return null;
  const end = QUANTIFIER.lastIndex;
  const [symbol, min, comma, max] = match;
  if (symbol === "*") return { min: 0, max: Infinity, end };
  if (symbol === "+") return { min: 1, max: Infinity, end };
  if (symbol === "?") return { min: 0, max: 1, end };
  if (comma === undefined) return { min: Number(min), max: Number(min), end };
  return { min: Number(min), max: max === undefined || max === "-1" ? Infinity : Number(max), end };
}
