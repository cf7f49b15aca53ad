/** Random languages, each written as a pattern and as a grammar, with random texts of the language. */

/** Numbers in [0, 1). */
type Random = () => number;

export interface Sketch {
  /** Also for JavaScript, with the flag `u`. */
  readonly pattern: string;
  /** Its form inside a rule. */
  readonly rule: string;
  readonly sample: () => string;
}

export interface SketchedLanguage extends Sketch {
  /** A complete grammar, with `root`. */
  readonly grammar: string;
}

const recursiveRules = ["root", "list", "item"];
/** Each string contains the characters of a language. */
const alphabets = ["abc", "01", "0123456789", "aé中😀", "eèéê"];

/** Gives the same languages for the same numbers. */
export class Sketcher {
  readonly #random: Random;
  #rules: string[] = [];
  #alphabet: readonly string[] = [];

  constructor(random: Random) {
    this.#random = random;
  }

  /** Sets, repetitions, groups and alternatives, nested up to `depth`. */
  sketchLanguage(depth: number): SketchedLanguage {
    this.#begin();
    const sketch = this.#sketch(depth);
    return { ...sketch, grammar: [`root ::= ${sketch.rule}`, ...this.#rules].join("\n") };
  }

  /** Three rules over the letters a, b and c that refer to each other and to themselves, also on the left. */
  recursiveGrammar(): string {
    const part = (): string => {
      const kind = this.#random();
      if (kind < 0.45) return this.pick(['"a"', '"b"', '"ab"', '"ca"']);
      if (kind < 0.55) return this.pick(["[ab]", "[^a]", "[b-c]*", "[a]*"]);
      return this.pick(recursiveRules) + this.pick(["", "", "", "?", "*", "+", "{1,2}"]);
    };
    const option = (): string => this.#several(part).join(" ");
    return recursiveRules.map((name) => `${name} ::= ${this.#several(option).join(" | ")}`).join("\n");
  }

  /** Different words over few letters, so that many share a beginning or end; some are prefixes of others. */
  words(maxNumWords: number): string[] {
    this.#begin();
    const numWords = 2 + this.#below(maxNumWords - 1);
    return [...new Set(Array.from({ length: numWords }, () => this.#word(5)))];
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.#below(items.length)]!;
  }

  #begin(): void {
    this.#rules = [];
    this.#alphabet = Array.from(this.pick(alphabets));
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #several<Item>(create: () => Item): Item[] {
    return Array.from({ length: 1 + this.#below(3) }, create);
  }

  #word(maxLength: number): string {
    return Array.from({ length: 1 + this.#below(maxLength) }, () => this.pick(this.#alphabet)).join("");
  }

  #sketch(depth: number): Sketch {
    const kind = this.#random();
    if (depth === 0 || kind < 0.1) return this.#random() < 0.6 ? literal(this.#word(3)) : this.#set();
    const inner = (): Sketch => this.#sketch(depth - 1);
    if (kind < 0.4) return this.#named(sequence(Array.from({ length: 2 + this.#below(2) }, inner)));
    if (kind < 0.65) {
      const options = Array.from({ length: 2 + this.#below(4) }, inner);
      return this.#named(this.#alternatives(options));
    }
    return this.#named(this.#repetition(this.#random() < 0.5 ? this.#set() : inner()));
  }

  #set(): Sketch {
    const members = [...new Set([this.pick(this.#alphabet), this.pick(this.#alphabet)])];
    const others = this.#alphabet.filter((character) => !members.includes(character));
    if (this.#random() < 0.3 && members.every((character) => character < "\u0080") && others.length > 0) {
      const text = `[^${members.join("")}]`;
      return { pattern: text, rule: text, sample: () => this.pick(others) };
    }
    const text = `[${members.join("")}]`;
    return { pattern: text, rule: text, sample: () => this.pick(members) };
  }

  #alternatives(options: readonly Sketch[]): Sketch {
    return {
      pattern: `(?:${options.map(({ pattern }) => pattern).join("|")})`,
      rule: `(${options.map(({ rule }) => rule).join(" | ")})`,
      sample: () => this.pick(options).sample(),
    };
  }

  #repetition(part: Sketch): Sketch {
    const [quantifier, min, max] = this.pick(quantifiers);
    return {
      pattern: `(?:${part.pattern})${quantifier}`,
      rule: `(${part.rule})${quantifier}`,
      sample: () => Array.from({ length: min + this.#below(max - min + 1) }, part.sample).join(""),
    };
  }

  /** Half of the time as a separate rule. */
  #named(sketch: Sketch): Sketch {
    if (this.#random() < 0.5) return sketch;
    const rule = `rule${this.#rules.length}`;
    this.#rules.push(`${rule} ::= ${sketch.rule}`);
    return { pattern: `(?:${sketch.pattern})`, rule, sample: sketch.sample };
  }
}

/** With the number of rounds in a sample. */
const quantifiers = [
  ["*", 0, 3],
  ["+", 1, 3],
  ["?", 0, 1],
  ["{2}", 2, 2],
  ["{1,2}", 1, 2],
  ["{0,3}", 0, 3],
  ["{2,}", 2, 4],
] as const;

function literal(text: string): Sketch {
  return { pattern: text, rule: `"${text}"`, sample: () => text };
}

function sequence(parts: readonly Sketch[]): Sketch {
  return {
    pattern: parts.map(({ pattern }) => pattern).join(""),
    rule: parts.map(({ rule }) => rule).join(" "),
    sample: () => parts.map(({ sample }) => sample()).join(""),
  };
}
