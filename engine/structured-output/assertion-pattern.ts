/** Reads patterns with lookaheads and word boundaries, which need an automaton of their own. */
import { anyButLineEnds, readBracketExpression, readEscape } from "./bracket-expression.ts";
import { LAST_CODE_POINT } from "./code-point-set.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { MAX_GROUP_NESTING, readQuantifier } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";

export type PatternPart =
  | { readonly kind: "set"; readonly set: CodePointSet }
  | { readonly kind: "sequence"; readonly parts: readonly PatternPart[] }
  | { readonly kind: "alternatives"; readonly options: readonly PatternPart[] }
  /** `max` may be Infinity. */
  | { readonly kind: "repetition"; readonly part: PatternPart; readonly min: number; readonly max: number }
  /** Empty. The text from here on begins with the part, or does not. */
  | { readonly kind: "lookahead"; readonly part: PatternPart; readonly isNegated: boolean }
  /** Empty, at the start of the text. */
  | { readonly kind: "start" }
  /** Empty, between a word character and another one, or not. */
  | { readonly kind: "boundary"; readonly isNegated: boolean };

export const anyCharacter: PatternPart = { kind: "set", set: [[0, LAST_CODE_POINT]] };
export const textEnd: PatternPart = { kind: "lookahead", part: anyCharacter, isNegated: true };

/** Whether a pattern has a lookahead or a word boundary, or seems to. */
export function hasAssertions(pattern: string): boolean {
  return /\(\?[=!]|\\[bB]/.test(pattern);
}

/**
 * Throws EngineError `invalid_argument` for unsupported syntax.
 *
 * @param place Where the pattern is, for errors.
 */
export function readAssertionPattern(pattern: string, place: string): PatternPart {
  const reader = new AssertionReader(pattern, place);
  const part = reader.readAlternatives();
  if (!reader.isAtEnd) reader.refuse("a ) without its (");
  return part;
}

const groupStartPattern = /\((?:\?(?::|P?<[A-Za-z_]\w*>|(?<look>[=!]))|(?!\?))/y;

class AssertionReader {
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

  readAlternatives(): PatternPart {
    const options = [this.#readSequence()];
    while (this.#pattern[this.#index] === "|") {
      this.#index++;
      options.push(this.#readSequence());
    }
    return options.length === 1 ? options[0]! : { kind: "alternatives", options };
  }

  #readSequence(): PatternPart {
    const parts: PatternPart[] = [];
    while (!this.isAtEnd && !"|)".includes(this.#pattern[this.#index]!)) parts.push(this.#readQuantified());
    return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
  }

  #readQuantified(): PatternPart {
    const part = this.#readAtom();
    const quantifier = readQuantifier(this.#pattern, this.#index);
    if (quantifier === null) return part;
    const { min, max, end } = quantifier;
    if (min > max) this.refuse(`the bounds {${min},${max}}`);
    // Laziness makes no difference to which texts match.
    this.#index = this.#pattern[end] === "?" ? end + 1 : end;
    return { kind: "repetition", part, min, max };
  }

  #readAtom(): PatternPart {
    const character = String.fromCodePoint(this.#pattern.codePointAt(this.#index)!);
    const boundary = /^\\[bB]/.exec(this.#pattern.slice(this.#index, this.#index + 2))?.[0];
    if (boundary !== undefined) {
      this.#index += 2;
      return { kind: "boundary", isNegated: boundary === "\\B" };
    }
    switch (character) {
      case "(":
        return this.#readGroup();
      case "^":
        this.#index++;
        return { kind: "start" };
      case "$":
        this.#index++;
        return textEnd;
      case ".":
        this.#index++;
        return { kind: "set", set: anyButLineEnds };
      case "[":
        return this.#take(readBracketExpression(this.#pattern, this.#index), "a set of characters that is not valid");
      case "\\":
        return this.#take(readEscape(this.#pattern, this.#index), "an escape");
      default: {
        if ("*+?{}]".includes(character)) this.refuse(character);
        this.#index += character.length;
        const code = character.codePointAt(0)!;
        return { kind: "set", set: [[code, code]] };
      }
    }
  }

  #take(read: ReturnType<typeof readEscape>, what: string): PatternPart {
    if (read === null) return this.refuse(what);
    this.#index = read.end;
    return { kind: "set", set: read.set };
  }

  #readGroup(): PatternPart {
    groupStartPattern.lastIndex = this.#index;
    const match = groupStartPattern.exec(this.#pattern);
    if (match === null) return this.refuse("a lookbehind or a group of this kind");
    this.#index = groupStartPattern.lastIndex;
    if (++this.#depth > MAX_GROUP_NESTING) {
      refuseStructuredOutput(`${this.#place} may nest at most ${MAX_GROUP_NESTING} groups`);
    }
    const part = this.readAlternatives();
    if (this.#pattern[this.#index] !== ")") this.refuse("a group that is not closed");
    this.#index++;
    this.#depth--;
    const look = match.groups?.look;
    return look === undefined ? part : { kind: "lookahead", part, isNegated: look === "!" };
  }
}
