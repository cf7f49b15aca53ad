/** Reads patterns: the part of regular expressions without lookaround. */
import { anyButLineEnds, readBracketExpression, readEscape } from "./bracket-expression.ts";
import { LAST_CODE_POINT } from "./code-point-set.ts";
import { alternativesOf, literalOf, MAX_GROUP_NESTING, readQuantifier, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/**
 * The texts that match as a whole. Throws EngineError `invalid_argument` for unsupported syntax.
 *
 * @param place Where the pattern is, for errors.
 */
export function readPattern(pattern: string, place = "The pattern"): Expression {
  return alternativesOf(readVariants(pattern, place).map(({ expression }) => expression));
}

/** Like `readPattern`, for the texts in which the pattern matches somewhere: JSON Schema's meaning of a pattern. */
export function readSearchPattern(pattern: string, place: string): Expression {
  const options = readVariants(pattern, place).map(({ expression, startsText, endsText }) =>
    sequenceOf([...(startsText ? [] : [anyText]), expression, ...(endsText ? [] : [anyText])]),
  );
  return alternativesOf(options);
}

const anyText: Expression = {
  kind: "repetition",
  part: { kind: "set", set: [[0, LAST_CODE_POINT]] },
  min: 0,
  max: Infinity,
};

function readVariants(pattern: string, place: string): Read {
  const reader = new PatternReader(pattern, place);
  const read = reader.readAlternatives();
  if (!reader.isAtEnd) reader.fail("has a ) without its (");
  return read;
}

/** An expression, and whether it requires the start or the end of the text: then nothing may precede or follow it. */
interface Variant {
  readonly expression: Expression;
  readonly startsText: boolean;
  readonly endsText: boolean;
}

/** Alternatives, at most one for each requirement. */
type Read = readonly Variant[];

const groupStartPattern = /\((?:\?:|\?P?<[A-Za-z_]\w*>|(?!\?))/y;
/** Characters with a special meaning. */
const specialPattern = new Set("*+?{}()[]|\\^$");

class PatternReader {
  readonly #pattern: string;
  readonly #place: string;
  #index = 0;
  #depth = 0;

  constructor(pattern: string, place: string) {
    this.#pattern = pattern;
    this.#place = place;
  }

  get isAtEnd(): boolean {
    return this.#index === this.#pattern.length;
  }

  refuse(what: string): never {
    return refuseStructuredOutput(`${this.#place} has ${what} at position ${this.#index}, which is not supported`);
  }

  /** For what no dialect allows. */
  fail(fault: string): never {
    return refuseStructuredOutput(`${this.#place} ${fault} at position ${this.#index}`);
  }

  readAlternatives(): Read {
    const options = [...this.#readSequence()];
    while (this.#pattern[this.#index] === "|") {
      this.#index++;
      options.push(...this.#readSequence());
    }
    return unite(options);
  }

  #readSequence(): Read {
    const parts: Expression[] = [];
    let first: Read = unanchored(literalOf(""));
    let last = first;
    let startsText = false;
    let endsText = false;
    for (let next = this.#pattern[this.#index]; next !== undefined && next !== "|" && next !== ")";) {
      if (next === "^") {
        if (parts.length > 0) this.refuse("^ after characters");
        startsText = true;
        this.#index++;
      } else if (next === "$") {
        endsText = true;
        this.#index++;
      } else {
        if (endsText || last.some((variant) => variant.endsText)) this.refuse("characters after $");
        last = this.#readQuantified();
        if (parts.length > 0 && last.some((variant) => variant.startsText)) this.refuse("^ after characters");
        if (parts.length === 0) first = last;
        parts.push(alternativesOf(last.map(({ expression }) => expression)));
      }
      next = this.#pattern[this.#index];
    }
    const variants =
      parts.length < 2
        ? first
        : first.flatMap((start) =>
            last.map((end) => ({
              expression: sequenceOf([start.expression, ...parts.slice(1, -1), end.expression]),
              startsText: start.startsText,
              endsText: end.endsText,
            })),
          );
    return variants.map((variant) => ({
      expression: variant.expression,
      startsText: variant.startsText || startsText,
      endsText: variant.endsText || endsText,
    }));
  }

  #readQuantified(): Read {
    const read = this.#readAtom();
    const [{ expression: part, startsText, endsText }] = read as readonly [Variant];
    const quantifier = readQuantifier(this.#pattern, this.#index);
    if (quantifier === null) return read;
    if (read.length > 1 || startsText || endsText) this.refuse("a repetition of ^ or $");
    const { min, max, end } = quantifier;
    if (min > max) this.fail(`has the bounds {${min},${max}}, whose minimum is above the maximum,`);
    // Laziness makes no difference to which texts match.
    this.#index = this.#pattern[end] === "?" ? end + 1 : end;
    return unanchored({ kind: "repetition", part, min, max });
  }

  #readAtom(): Read {
    const character = String.fromCodePoint(this.#pattern.codePointAt(this.#index)!);
    if (character === "(") return this.#readGroup();
    if (character === ".") return this.#take({ set: anyButLineEnds, end: this.#index + 1 }, character);
    if (character === "[")
      return this.#take(
        readBracketExpression(this.#pattern, this.#index),
        "a set of characters that is not closed or not valid",
      );
    if (character === "\\") return this.#take(readEscape(this.#pattern, this.#index), "an escape");
    if (specialPattern.has(character)) this.refuse(character);
    this.#index += character.length;
    return unanchored(literalOf(character));
  }

  #take(read: ReturnType<typeof readEscape>, what: string): Read {
    if (read === null) return this.refuse(what);
    this.#index = read.end;
    return unanchored({ kind: "set", set: read.set });
  }

  #readGroup(): Read {
    groupStartPattern.lastIndex = this.#index;
    if (!groupStartPattern.test(this.#pattern)) {
      const looksBehind = /^\(\?<[=!]/.test(this.#pattern.slice(this.#index, this.#index + 4));
      this.refuse(looksBehind ? "a lookbehind" : "a group of this kind");
    }
    this.#index = groupStartPattern.lastIndex;
    if (++this.#depth > MAX_GROUP_NESTING) {
      return refuseStructuredOutput(`${this.#place} may nest at most ${MAX_GROUP_NESTING} groups`);
    }
    const read = this.readAlternatives();
    if (this.#pattern[this.#index] !== ")") this.fail("has a group that is not closed");
    this.#index++;
    this.#depth--;
    return read;
  }
}

function unanchored(expression: Expression): Read {
  return [{ expression, startsText: false, endsText: false }];
}

/** Merges alternatives with the same requirements. */
function unite(variants: readonly Variant[]): Read {
  const groups = Map.groupBy(variants, ({ startsText, endsText }) => `${startsText} ${endsText}`);
  return Array.from(groups.values(), ([first, ...others]) => ({
    ...first!,
    expression: alternativesOf([first!, ...others].map(({ expression }) => expression)),
  }));
}
