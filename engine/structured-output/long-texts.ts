/** The texts of an expression that have a minimum length. */
import { alternativesOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { textLengths } from "./text-lengths.ts";
import type { TextLengths } from "./text-lengths.ts";

/** Maximum number of ways to divide lengths among parts, in all expressions. This many take some tens of milliseconds. */
const MAX_DIVISIONS = 20_000;
/** Maximum number of rounds of different lengths: each is nested in the one before. */
const MAX_ROUNDS = 256;

class TooManyDivisions extends Error {}

type Sequence = Extract<Expression, { readonly kind: "sequence" }>;
type Repetition = Extract<Expression, { readonly kind: "repetition" }>;

/** Of expressions without rules. Mutable. */
export class LongTexts {
  #numDivisions = 0;
  readonly #lengths = new Map<Expression, TextLengths>();
  /** By expression and minimum. */
  readonly #written = new Map<Expression, Map<number, Expression | null>>();
  /** By repetition: the same with one round less. By sequence: its parts after the first one with several lengths. */
  readonly #rests = new Map<Expression, Expression>();

  /**
   * Returns an expression of the texts with at least `min` characters: null if there are none, "too-large" if it would
   * need too many parts.
   */
  from(min: number, expression: Expression): Expression | "too-large" | null {
    try {
      return this.#write(expression, min);
    } catch (error) {
      if (error instanceof TooManyDivisions) return "too-large";
      throw error;
    }
  }

  lengthsOf(expression: Expression): TextLengths {
    return textLengths(expression, this.#lengths);
  }

  #write(expression: Expression, min: number): Expression | null {
    const lengths = this.lengthsOf(expression);
    if (lengths.min >= min) return expression;
    if (lengths.max < min) return null;
    let written = this.#written.get(expression);
    if (written === undefined) this.#written.set(expression, (written = new Map()));
    let long = written.get(min);
    if (long === undefined) written.set(min, (long = this.#rewrite(expression, min)));
    return long;
  }

  #rewrite(expression: Expression, min: number): Expression | null {
    switch (expression.kind) {
      case "words":
        return { kind: "words", words: expression.words.filter((word) => Array.from(word).length >= min) };
      case "alternatives":
        return eitherOf(expression.options.map((option) => this.#write(option, min)));
      case "sequence":
        return this.#sequence(expression, min);
      case "repetition":
        return this.#repetition(expression, min);
      case "set":
      case "limited":
      case "rule":
        return null;
      default:
        return expression satisfies never;
    }
  }

  /** Parts of one length are left as they are. */
  #sequence(sequence: Sequence, min: number): Expression | null {
    const { parts } = sequence;
    const index = parts.findIndex((part) => {
      const lengths = this.lengthsOf(part);
      return lengths.min !== lengths.max;
    });
    const fixed = parts.slice(0, index);
    const left = fixed.reduce((sum, part) => sum - this.lengthsOf(part).min, min);
    let rest = this.#rests.get(sequence);
    if (rest === undefined) this.#rests.set(sequence, (rest = sequenceOf(parts.slice(index + 1))));
    const long = this.#pair(parts[index]!, rest, left);
    return long === null ? null : sequenceOf([...fixed, long]);
  }

  /** A text of `first` and one of `second`, of this length together. */
  #pair(first: Expression, second: Expression, min: number): Expression | null {
    const { min: firstMin, max: firstMax } = this.lengthsOf(first);
    const { min: secondMin, max: secondMax } = this.lengthsOf(second);
    const options: (Expression | null)[] = [];
    const least = Math.max(firstMin, min - secondMax);
    const most = Math.max(least, Math.min(firstMax, min - secondMin));
    for (let length = least; length <= most; length++) {
      if (++this.#numDivisions > MAX_DIVISIONS) throw new TooManyDivisions();
      const start = this.#write(first, length);
      const end = this.#write(second, min - length);
      options.push(start === null || end === null ? null : sequenceOf([start, end]));
    }
    return eitherOf(options);
  }

  /** The first round of a repetition that begins with a text of its own is never empty. */
  #repetition(repetition: Repetition, min: number): Expression | null {
    const { part, max } = repetition;
    const lengths = this.lengthsOf(part);
    if (lengths.min === lengths.max) return { ...repetition, min: Math.ceil(min / lengths.min) };
    const nonEmpty = this.#write(part, 1);
    if (nonEmpty === null) return null;
    if (max === 1) return this.#write(nonEmpty, min);
    if (min > MAX_ROUNDS) throw new TooManyDivisions();
    return this.#pair(nonEmpty, this.#withOneRoundLess(repetition), min);
  }

  #withOneRoundLess(repetition: Repetition): Expression {
    const { part, min, max } = repetition;
    if (min === 0 && max === Infinity) return repetition;
    let shorter = this.#rests.get(repetition);
    if (shorter === undefined) {
      shorter = { kind: "repetition", part, min: Math.max(0, min - 1), max: max - 1 };
      this.#rests.set(repetition, shorter);
    }
    return shorter;
  }
}

function eitherOf(options: readonly (Expression | null)[]): Expression | null {
  const possible = options.filter((option) => option !== null);
  return possible.length === 0 ? null : alternativesOf(possible);
}
