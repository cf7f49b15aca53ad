/** The texts of JSON numbers that a schema describes. */
import { alternativesOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import type { JsonObject } from "./json-schema.ts";
import { rule } from "./json-text.ts";
import { multiplesOf } from "./multiples.ts";
import { isEmptyRange, numberBoundsOf, numberRangeOf, rangeKeywords } from "./number-range.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/**
 * Maximum number of characters of the grammars of all different ranges of numbers. One of 64-bit numbers has 1,300, one of
 * percentages 60. This many take some tens of milliseconds.
 */
const MAX_RANGE_CHARACTERS = 100_000;

/** Maximum number of digits in all places of the multiples of all schemas. This many take some tens of milliseconds. */
const MAX_MULTIPLES_SIZE = 30_000;

/** Ranges that many schemas share become rules. Mutable. */
export class JsonNumberWriter {
  readonly #rules: Map<string, Expression>;
  readonly #nothing: (reason: string) => Expression;
  #numRangeCharacters = 0;
  #multiplesSize = 0;

  /**
   * @param rules Rules are added to it.
   * @param nothing Returns the expression without a text, for a reason.
   */
  constructor(rules: Map<string, Expression>, nothing: (reason: string) => Expression) {
    this.#rules = rules;
    this.#nothing = nothing;
  }

  write(type: "integer" | "number", schema: JsonObject, path: string): Expression {
    const { multipleOf: step } = schema;
    const bounds = rangeKeywords.map((keyword) => schema[keyword]);
    if (step === undefined && bounds.every((bound) => bound === undefined)) return rule(type);
    return this.#shared(`${type} ${[...bounds, step].join()}`, () => {
      if (step !== undefined) return this.#multiplesOf(type, step as number, schema, path);
      const range = numberRangeOf(schema, type);
      if (range.kind !== "bounded") return rule(type);
      this.#numRangeCharacters += range.rule.length;
      if (this.#numRangeCharacters > MAX_RANGE_CHARACTERS) {
        refuseStructuredOutput(
          `json is too large: the schemas up to ${path} have too many different ranges of numbers`,
        );
      }
      return readGrammar(`root ::= ${range.rule}`).root;
    });
  }

  /** The ranges between excluded numbers. */
  writeExcept(excluded: readonly number[], type: "integer" | "number", schema: JsonObject, path: string): Expression {
    const ends = [...new Set(excluded.map((value) => value || 0))].sort((left, right) => left - right);
    const ranges = Array.from({ length: ends.length + 1 }, (_, index) => ({
      ...(index > 0 && { exclusiveMinimum: ends[index - 1] }),
      ...(index < ends.length && { exclusiveMaximum: ends[index] }),
    }));
    if (schema.multipleOf !== undefined) {
      return refuseStructuredOutput(`${path} has the keywords not and multipleOf together, which is not supported`);
    }
    const options = ranges.flatMap((bounds) => {
      const { minimum, maximum } = schema;
      const range = {
        minimum,
        maximum,
        exclusiveMinimum: outermost(Math.max, bounds.exclusiveMinimum, schema.exclusiveMinimum),
        exclusiveMaximum: outermost(Math.min, bounds.exclusiveMaximum, schema.exclusiveMaximum),
      };
      if (isEmptyRange(range, type)) return [];
      if (numberRangeOf(range, type).kind === "unsupported") {
        refuseStructuredOutput(`${path} excludes a number of more than 15 digits, which is not supported`);
      }
      return [this.write(type, range, path)];
    });
    return options.length === 0 ? this.#nothing(`${path} allows no value`) : alternativesOf(options);
  }

  #multiplesOf(type: "integer" | "number", step: number, schema: JsonObject, path: string): Expression {
    const maxSize = MAX_MULTIPLES_SIZE - this.#multiplesSize;
    const multiples = multiplesOf({ type, step, bounds: numberBoundsOf(schema)!, maxSize });
    if (multiples.kind === "some") {
      this.#multiplesSize += multiples.size;
      return multiples.expression;
    }
    const problem =
      multiples.kind === "none"
        ? "of which no number of at most 15 digits within the bounds is a multiple"
        : "whose multiples take too many parts; narrow the range, or leave it out";
    return refuseStructuredOutput(`${path}.multipleOf is ${step}, ${problem}`);
  }

  #shared(name: string, write: () => Expression): Expression {
    if (!this.#rules.has(name)) this.#rules.set(name, write());
    return rule(name);
  }
}

/** Of the bounds that are numbers. */
function outermost(choose: (...bounds: number[]) => number, ...bounds: readonly unknown[]): number | undefined {
  const numbers = bounds.filter((bound) => typeof bound === "number");
  return numbers.length === 0 ? undefined : choose(...numbers);
}
