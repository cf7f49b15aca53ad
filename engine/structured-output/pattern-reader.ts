/** Reads patterns: the part of regular expressions that matches whole texts without lookaround. */
import { anyButLineEnds, readBracketExpression, readEscape } from "./bracket-expression.ts";
import { alternativesOf, literalOf, MAX_GROUP_NESTING, readQuantifier, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/**
 * Throws EngineError `invalid_argument` for unsupported syntax.
 *
 * @param place Where the pattern is, for errors.
 */
export function readPattern(pattern: string, place = "The pattern"): Expression {
  const reader = new PatternReader(pattern, place);
  const { expression } = reader.readAlternatives();
  if (!reader.isAtEnd) reader.fail("has a ) without its (");
  return expression;
}

/** An expression, and whether it requires the start or the end of the text: then nothing may precede or follow it. */
interface Read {
  readonly expression: Expression;
  readonly startsText: boolean;
  readonly endsText: boolean;
}

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
    const options = [this.#readSequence()];
    while (this.#pattern[this.#index] === "|") {
      this.#index++;
      options.push(this.#readSequence());
    }
    return {
      expression: alternativesOf(options.map(({ expression }) => expression)),
      startsText: options.some(({ startsText }) => startsText),
      endsText: options.some(({ endsText }) => endsText),
    };
  }

  #readSequence(): Read {
    const parts: Expression[] = [];
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
        if (endsText) this.refuse("characters after $");
        const read = this.#readQuantified();
        if (read.startsText && parts.length > 0) this.refuse("^ after characters");
        startsText ||= read.startsText;
        endsText = read.endsText;
        parts.push(read.expression);
      }
      next = this.#pattern[this.#index];
    }
    return { expression: sequenceOf(parts), startsText, endsText };
  }

  #readQuantified(): Read {
    const read = this.#readAtom();
    const quantifier = readQuantifier(this.#pattern, this.#index);
    if (quantifier === null) return read;
    if (read.startsText || read.endsText) this.refuse("a repetition of ^ or $");
    const { min, max, end } = quantifier;
    if (min > max) this.fail(`has the bounds {${min},${max}}, whose minimum is above the maximum,`);
    // Laziness makes no difference for a whole text.
    this.#index = this.#pattern[end] === "?" ? end + 1 : end;
    return { ...read, expression: { kind: "repetition", part: read.expression, min, max } };
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
    return { expression: literalOf(character), startsText: false, endsText: false };
  }

  #take(read: ReturnType<typeof readEscape>, what: string): Read {
    if (read === null) return this.refuse(what);
    this.#index = read.end;
    return { expression: { kind: "set", set: read.set }, startsText: false, endsText: false };
  }

  #readGroup(): Read {
    groupStartPattern.lastIndex = this.#index;
    if (!groupStartPattern.test(this.#pattern)) {
      const looksAround = /^\(\?<?[=!]/.test(this.#pattern.slice(this.#index, this.#index + 4));
      this.refuse(looksAround ? "a lookahead or lookbehind" : "a group of this kind");
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
