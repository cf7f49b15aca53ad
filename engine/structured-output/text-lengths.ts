/** The lengths of the texts of an expression. */
import type { Expression } from "./expression.ts";

/** In characters. */
export interface TextLengths {
  readonly min: number;
  /** Infinity if there is no limit. */
  readonly max: number;
}

/**
 * Of an expression without rules, such as a pattern. Recurses over its parts.
 *
 * @param known By part; receives the lengths of all parts.
 */
export function textLengths(expression: Expression, known = new Map<Expression, TextLengths>()): TextLengths {
  let lengths = known.get(expression);
  if (lengths === undefined)
    known.set(expression, (lengths = lengthsOf(expression, (part) => textLengths(part, known))));
  return lengths;
}

function lengthsOf(expression: Expression, ofPart: (part: Expression) => TextLengths): TextLengths {
  switch (expression.kind) {
    case "set":
      return { min: 1, max: 1 };
    case "words":
      return eitherOf(expression.words.map((word) => exactly(Array.from(word).length)));
    case "sequence": {
      const lengths = expression.parts.map(ofPart);
      return lengths.reduce((left, right) => ({ min: left.min + right.min, max: left.max + right.max }), exactly(0));
    }
    case "alternatives":
      return eitherOf(expression.options.map(ofPart));
    case "repetition": {
      const { min, max } = ofPart(expression.part);
      return { min: min * expression.min, max: max === 0 || expression.max === 0 ? 0 : max * expression.max };
    }
    case "limited": {
      const { min, max } = ofPart(expression.part);
      return { min, max: Math.min(max, expression.max) };
    }
    case "rule":
      return { min: 0, max: Infinity };
    default:
      return expression satisfies never;
  }
}

function exactly(length: number): TextLengths {
  return { min: length, max: length };
}

/** There may be too many for the arguments of one call. */
function eitherOf(lengths: readonly TextLengths[]): TextLengths {
  return lengths.reduce((left, right) => ({ min: Math.min(left.min, right.min), max: Math.max(left.max, right.max) }));
}
