/** The lengths of the texts of an expression. */
import type { Expression } from "./expression.ts";

/** In characters. */
export interface TextLengths {
  readonly min: number;
  /** Infinity if there is no limit. */
  readonly max: number;
}

/** Of an expression without rules, such as a pattern. Recurses over its parts. */
export function textLengths(expression: Expression): TextLengths {
  switch (expression.kind) {
    case "set":
      return { min: 1, max: 1 };
    case "words":
      return eitherOf(expression.words.map((word) => exactly(Array.from(word).length)));
    case "sequence": {
      const lengths = expression.parts.map(textLengths);
      return lengths.reduce((left, right) => ({ min: left.min + right.min, max: left.max + right.max }), exactly(0));
    }
    case "alternatives":
      return eitherOf(expression.options.map(textLengths));
    case "repetition": {
      const { min, max } = textLengths(expression.part);
      return { min: min * expression.min, max: max === 0 || expression.max === 0 ? 0 : max * expression.max };
    }
    case "limited": {
      const { min, max } = textLengths(expression.part);
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
