/** The texts of JSON strings that a schema describes. */
import { createAssertionMeter, readAssertedTexts } from "./asserted-texts.ts";
import { hasAssertions } from "./assertion-pattern.ts";
import type { Expression } from "./expression.ts";
import { countBounds } from "./json-bounds.ts";
import { maxLengthByFormat, patternsByFormat } from "./json-format.ts";
import type { JsonObject } from "./json-schema.ts";
import { quoted, repeat, rule, StringEscaper } from "./json-text.ts";
import { LongTexts } from "./long-texts.ts";
import { namesOtherThan } from "./other-names.ts";
import { readPattern, readSearchPattern } from "./pattern-reader.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import type { TextLengths } from "./text-lengths.ts";

/**
 * Maximum number of characters of all patterns beside which there is a bound of their length: each becomes a part of its
 * own. This many take some tens of milliseconds.
 */
const MAX_BOUNDED_CHARACTERS = 20_000;

/** Maximum number of rules of all patterns with lookaheads. This many take some tenths of a second. */
const MAX_STATE_RULES = 10_000;

/** The texts of a pattern or format, with a minimum length or without. */
interface Texts {
  readonly name: string;
  readonly keyword: "format" | "pattern";
  readonly pattern: string;
  readonly expression: Expression;
  readonly lengths: TextLengths;
  readonly escaper: StringEscaper;
  /** Whether its characters were written one by one. */
  isLimited: boolean;
}

/** Texts that many schemas share become rules. Mutable. */
export class JsonStringWriter {
  readonly #rules: Map<string, Expression>;
  readonly #nothing: (reason: string) => Expression;
  /** By keyword, pattern and minimum length. Thousands of strings may have the same one. */
  readonly #texts = new Map<string, Texts>();
  readonly #assertions = createAssertionMeter();
  readonly #longTexts = new LongTexts();
  #numStateRules = 0;
  #numBoundedCharacters = 0;
  #numExcludedCharacters = 0;

  /**
   * @param rules Rules are added to it.
   * @param nothing Returns the expression without a text, for a reason.
   */
  constructor(rules: Map<string, Expression>, nothing: (reason: string) => Expression) {
    this.#rules = rules;
    this.#nothing = nothing;
  }

  /** Beside a pattern, a format only describes, as everywhere in JSON Schema: generators of schemas write both. */
  write(schema: JsonObject, path: string): Expression {
    const { pattern, format } = schema;
    if (typeof pattern === "string") {
      return hasAssertions(pattern)
        ? this.#stringOfAssertions(pattern, schema, path)
        : this.#stringOfPattern("pattern", pattern, schema, path);
    }
    if (typeof format !== "string") return this.#stringOfLength(schema, path);
    const known = patternsByFormat.get(format);
    if (known === undefined) return this.#stringOfLength(schema, path);
    const longest = maxLengthByFormat.get(format);
    const { maxLength = Infinity } = schema;
    const isShorter = longest !== undefined && typeof maxLength === "number" && longest < maxLength;
    return this.#stringOfPattern("format", known, isShorter ? { ...schema, maxLength: longest } : schema, path);
  }

  #stringOfPattern(keyword: "format" | "pattern", pattern: string, schema: JsonObject, path: string): Expression {
    const { min, max } = countBounds(schema, "minLength", "maxLength", path);
    const whole = this.#textsOf(keyword, pattern, path);
    const texts = whole.lengths.min < min ? this.#longTextsOf(whole, min, `${path}.minLength`) : whole;
    const { name, lengths, expression, escaper } = texts;
    if (lengths.max <= max) return this.#shared(`string ${name}`, () => quoted(escaper.escape(expression)));
    if (lengths.min > max) {
      const problem = `but every text of its ${keyword} has ${lengths.min} characters or more`;
      refuseStructuredOutput(`${path}.maxLength is ${max}, ${problem}`);
    }
    if (!texts.isLimited) this.#countBounded(pattern, path);
    texts.isLimited = true;
    const part = escaper.characters(expression);
    return this.#shared(`string ${name} {0,${max}}`, () => quoted({ kind: "limited", part, max }));
  }

  #stringOfAssertions(pattern: string, schema: JsonObject, path: string): Expression {
    const bounds = countBounds(schema, "minLength", "maxLength", path);
    return this.#shared(`string ${bounds.min} ${bounds.max} ${pattern}`, () => {
      const states = new Map<string, Expression>();
      const place = `${path}.pattern`;
      const texts = readAssertedTexts(pattern, {
        isWhole: false,
        bounds,
        place,
        meter: this.#assertions,
        rules: states,
      });
      this.#numStateRules += states.size;
      if (this.#numStateRules > MAX_STATE_RULES) {
        const problem = `the patterns with lookaheads up to ${path} take more than ${MAX_STATE_RULES} states`;
        refuseStructuredOutput(`json is too large: ${problem}; make their counts or the lengths smaller`);
      }
      if (texts === null) return this.#nothing(`${place} matches no text of the allowed length`);
      const escaper = new StringEscaper();
      for (const [name, body] of states) this.#rules.set(name, escaper.escape(body));
      return quoted(texts);
    });
  }

  /** A pattern may match anywhere in a text, a format is the whole text. */
  #textsOf(keyword: "format" | "pattern", pattern: string, path: string): Texts {
    const name = `${keyword} ${pattern}`;
    let texts = this.#texts.get(name);
    if (texts === undefined) {
      const expression = (keyword === "format" ? readPattern : readSearchPattern)(pattern, `${path}.${keyword}`);
      const lengths = this.#longTexts.lengthsOf(expression);
      texts = { name, keyword, pattern, expression, lengths, escaper: new StringEscaper(), isLimited: false };
      this.#texts.set(name, texts);
    }
    return texts;
  }

  #longTextsOf(whole: Texts, min: number, path: string): Texts {
    const name = `${whole.name} {${min},}`;
    let texts = this.#texts.get(name);
    if (texts !== undefined) return texts;
    this.#countBounded(whole.pattern, path);
    const expression = this.#longTexts.from(min, whole.expression);
    if (expression === null) {
      const problem = `but no text of its ${whole.keyword} has that many characters`;
      return refuseStructuredOutput(`${path} is ${min}, ${problem}`);
    }
    if (expression === "too-large") {
      const problem = `which takes too many parts beside its ${whole.keyword}`;
      return refuseStructuredOutput(`${path} is ${min}, ${problem}; leave one of them out`);
    }
    texts = { ...whole, name, expression, lengths: this.#longTexts.lengthsOf(expression), isLimited: false };
    this.#texts.set(name, texts);
    return texts;
  }

  #countBounded(pattern: string, path: string): void {
    this.#numBoundedCharacters += pattern.length;
    if (this.#numBoundedCharacters <= MAX_BOUNDED_CHARACTERS) return;
    const problem = `the patterns up to ${path}, beside which there is a minLength or maxLength, have`;
    refuseStructuredOutput(`json is too large: ${problem} more than ${MAX_BOUNDED_CHARACTERS} characters`);
  }

  #stringOfLength(schema: JsonObject, path: string): Expression {
    const { min, max } = countBounds(schema, "minLength", "maxLength", path);
    if (min === 0 && max === Infinity) return rule("string");
    return this.#shared(`string {${min},${max}}`, () => quoted(repeat(rule("character"), min, max)));
  }

  /** Any string but some. */
  writeExcept(excluded: readonly string[], path: string): Expression {
    const names = [...new Set(excluded)];
    this.#numExcludedCharacters += names.join("").length;
    if (this.#numExcludedCharacters > MAX_BOUNDED_CHARACTERS) {
      const problem = `the strings that not excludes up to ${path} have`;
      refuseStructuredOutput(`json is too large: ${problem} more than ${MAX_BOUNDED_CHARACTERS} characters`);
    }
    return this.#shared(`string other than ${JSON.stringify(names)}`, () =>
      namesOtherThan(names, `string ${this.#rules.size}`, this.#rules),
    );
  }

  #shared(name: string, write: () => Expression): Expression {
    if (!this.#rules.has(name)) this.#rules.set(name, write());
    return rule(name);
  }
}
