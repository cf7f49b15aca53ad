/** Turns JSON Schemas into languages: the texts of the values that they describe. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { countBounds } from "./json-bounds.ts";
import { patternsByFormat } from "./json-format.ts";
import { JsonObjectWriter } from "./json-object-language.ts";
import {
  checkSchema,
  createSchemaCheck,
  isObject,
  lengthKeywords,
  listKeywords,
  nameKeywords,
  restKeywords,
  textKeywords,
} from "./json-schema.ts";
import type { JsonObject, SchemaCheck } from "./json-schema.ts";
import { comma, constantOf, jsonRulesFor, quoted, repeat, rule, StringEscaper, whitespace } from "./json-text.ts";
import { LongTexts } from "./long-texts.ts";
import { multiplesOf } from "./multiples.ts";
import { numberBoundsOf, numberRangeOf, rangeKeywords } from "./number-range.ts";
import { readPattern, readSearchPattern } from "./pattern-reader.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { schemaAt } from "./schema-references.ts";
import type { TextLengths } from "./text-lengths.ts";

const typeNames = new Set<unknown>(["object", "array", "string", "integer", "number", "boolean", "null"]);

/**
 * Maximum number of characters of all patterns beside which there is a bound of their length: each becomes a part of its
 * own. This many take some tens of milliseconds.
 */
const MAX_BOUNDED_CHARACTERS = 20_000;

/**
 * Maximum number of characters of the grammars of all different ranges of numbers. One of 64-bit numbers has 1,300, one of
 * percentages 60. This many take some tens of milliseconds.
 */
const MAX_RANGE_CHARACTERS = 100_000;

/** Maximum number of digits in all places of the multiples of all schemas. This many take some tens of milliseconds. */
const MAX_MULTIPLES_SIZE = 30_000;

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

/**
 * Expects a schema checked by `checkJsonSchema`. Properties come in the order of their description, with a bounded
 * amount of white space wherever JSON allows it. Throws EngineError `invalid_argument`.
 */
export function readJsonSchema(text: string, isCompact = false): Language {
  return new SchemaReader(JSON.parse(text), isCompact).read();
}

/** Any object. */
export function anyJsonObject(isCompact = false): Language {
  return { root: rule("object"), rules: jsonRulesFor(isCompact) };
}

/** Referenced schemas become rules, and so do texts of strings and ranges of numbers that many schemas share. */
class SchemaReader {
  readonly #schema: unknown;
  readonly #rules: Map<string, Expression>;
  readonly #objects: JsonObjectWriter;
  /** A reference may point outside the schema's own keywords, to something not yet checked. */
  readonly #check: SchemaCheck;
  /** By the names of their rules. */
  readonly #pending: [name: string, read: () => Expression][] = [];
  readonly #read = new Map<JsonObject, Expression>();
  /** By keyword, pattern and minimum length. Thousands of strings may have the same one. */
  readonly #texts = new Map<string, Texts>();
  readonly #longTexts = new LongTexts();
  #numBoundedCharacters = 0;
  #numRangeCharacters = 0;
  #multiplesSize = 0;
  #numMerged = 0;

  constructor(schema: unknown, isCompact: boolean) {
    this.#schema = schema;
    this.#check = createSchemaCheck(schema);
    this.#rules = new Map(jsonRulesFor(isCompact));
    this.#objects = new JsonObjectWriter({
      rules: this.#rules,
      valueOf: (inner, path) => this.#valueOf(inner, path),
      nameOf: (inner, path) => this.#nameOf(inner, path),
    });
  }

  read(): Language {
    const root = this.#valueOf(this.#schema, "json");
    for (let next = this.#pending.pop(); next !== undefined; next = this.#pending.pop()) {
      const [name, readBody] = next;
      this.#rules.set(name, readBody());
    }
    return { root, rules: this.#rules };
  }

  /** Reads each schema once, as several names that are required without a schema of their own share one. */
  #valueOf(schema: unknown, path: string): Expression {
    if (!isObject(schema)) return rule("value");
    let expression = this.#read.get(schema);
    if (expression === undefined) this.#read.set(schema, (expression = this.#expressionOf(schema, path)));
    return expression;
  }

  /** Merged parts become a rule, because they may refer to the schema itself. */
  #expressionOf(schema: JsonObject, path: string): Expression {
    const merged = this.#check.merger.merge(schema, path);
    if (merged !== schema) {
      const name = `merged ${this.#numMerged++}`;
      this.#rules.set(name, rule(name));
      this.#pending.push([name, () => this.#valueOf(merged, path)]);
      return rule(name);
    }
    if (schema.$ref !== undefined) return this.#referredTo(schema.$ref as string, path);
    const constants = constantsOf(schema, path);
    if (constants !== null) return this.#oneOf("enum", constants, path, (value) => literalOf(constantOf(value)));
    for (const keyword of ["anyOf", "oneOf"] as const) {
      if (schema[keyword] === undefined) continue;
      return this.#oneOf(keyword, schema[keyword], path, (option, place) => this.#valueOf(option, place));
    }
    const [only] = Array.isArray(schema.allOf) ? schema.allOf : [];
    if (only !== undefined) return this.#valueOf(only, `${path}.allOf.0`);
    const types = typesOf(schema, path);
    return alternativesOf(types.map((type) => this.#typed(type, schema, path)));
  }

  /** The described values that are strings. */
  #nameOf(given: unknown, path: string): Expression {
    if (!isObject(given)) return rule("string");
    const schema = this.#check.merger.merge(given, path);
    if (schema.$ref !== undefined) return this.#referredTo(schema.$ref as string, path, "names");
    const isName = (value: unknown): boolean => typeof value === "string";
    const constants = Array.isArray(schema.enum) ? schema.enum : schema.const === undefined ? null : [schema.const];
    if (constants !== null) return this.#valueOf({ enum: constants.filter(isName) }, path);
    for (const keyword of ["anyOf", "oneOf", "allOf"] as const) {
      if (schema[keyword] === undefined) continue;
      return this.#oneOf(keyword, schema[keyword], path, (option, place) => this.#nameOf(option, place));
    }
    return this.#typed("string", schema, path);
  }

  #oneOf(
    keyword: string,
    options: unknown,
    path: string,
    toExpression: (option: unknown, path: string) => Expression,
  ): Expression {
    if (!Array.isArray(options) || options.length === 0) {
      return refuseStructuredOutput(`${path}.${keyword} must be a list with at least one entry`);
    }
    return alternativesOf(options.map((option, index) => toExpression(option, `${path}.${keyword}.${index}`)));
  }

  /** The rule of the schema at a place, or of its values that are strings. */
  #referredTo(reference: string, path: string, read: "values" | "names" = "values"): Expression {
    const name = read === "values" ? reference : `names: ${reference}`;
    if (!this.#rules.has(name)) {
      const schema = schemaAt(this.#schema, reference, path);
      checkSchema(schema, reference, this.#check);
      this.#rules.set(name, rule(name));
      this.#pending.push([
        name,
        () => (read === "values" ? this.#valueOf(schema, reference) : this.#nameOf(schema, reference)),
      ]);
    }
    return rule(name);
  }

  #typed(type: string, schema: JsonObject, path: string): Expression {
    switch (type) {
      case "object":
        return this.#objects.write(schema, path);
      case "array":
        return this.#arrayOf(schema, path);
      case "string":
        return this.#stringOf(schema, path);
      case "integer":
      case "number":
        return this.#numberOf(type, schema, path);
      default:
        return rule(type);
    }
  }

  #numberOf(type: "integer" | "number", schema: JsonObject, path: string): Expression {
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

  /** Beside a pattern, a format only describes, as everywhere in JSON Schema: generators of schemas write both. */
  #stringOf(schema: JsonObject, path: string): Expression {
    const { pattern, format } = schema;
    if (typeof pattern === "string") return this.#stringOfPattern("pattern", pattern, schema, path);
    const known = typeof format === "string" ? patternsByFormat.get(format) : undefined;
    return known === undefined
      ? this.#stringOfLength(schema, path)
      : this.#stringOfPattern("format", known, schema, path);
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

  #shared(name: string, write: () => Expression): Expression {
    if (!this.#rules.has(name)) this.#rules.set(name, write());
    return rule(name);
  }

  /** The first items have their own schemas. Without a schema for further items, none follow. */
  #arrayOf(schema: JsonObject, path: string): Expression {
    const { min, max } = countBounds(schema, "minItems", "maxItems", path);
    const first = (schema.prefixItems ?? []) as readonly unknown[];
    const others = schema.items ?? schema.unevaluatedItems ?? first.length === 0;
    const mostItems = others === false ? first.length : max;
    if (max < first.length || min > mostItems) {
      const number = min > mostItems ? `at least ${min}` : `at most ${max}`;
      refuseStructuredOutput(`${path} requires ${number} items and describes ${first.length}`);
    }
    const firstItems = first.map((item, index) => this.#valueOf(item, `${path}.prefixItems.${index}`));
    if (firstItems.length === 0 && mostItems === 0) return sequenceOf([literalOf("["), whitespace, literalOf("]")]);
    const parts: Expression[] = firstItems.flatMap((item, index) => (index === 0 ? [item] : [comma, item]));
    if (mostItems > first.length) {
      const other = this.#valueOf(others, `${path}.items`);
      const numTold = Math.max(1, first.length);
      if (first.length === 0) parts.push(other);
      parts.push(repeat(sequenceOf([comma, other]), Math.max(0, min - numTold), max - numTold));
    }
    const items = sequenceOf([...parts, whitespace]);
    const canBeEmpty = first.length === 0 && min === 0;
    return sequenceOf([literalOf("["), whitespace, canBeEmpty ? repeat(items, 0, 1) : items, literalOf("]")]);
  }
}

const describingNameKeywords = [...nameKeywords, ...restKeywords].filter((keyword) => !/^(?:min|max)/.test(keyword));
const describingListKeywords = listKeywords.filter((keyword) => !/^(?:min|max)/.test(keyword));

/** The values of `const` or `enum` that have the schema's type; null if it has neither. */
function constantsOf(schema: JsonObject, path: string): unknown {
  const { type, enum: values } = schema;
  const constants = schema.const === undefined ? values : [schema.const];
  if (constants === undefined) return null;
  if (type === undefined || !Array.isArray(constants) || constants.length === 0) return constants;
  const types = new Set<string>(typesOf(schema, path));
  const ofType = constants.filter((value) => typeNamesOf(value).some((name) => types.has(name)));
  if (ofType.length === 0) refuseStructuredOutput(`${path} has constants of other types than ${[...types].join(", ")}`);
  return ofType;
}

function typeNamesOf(value: unknown): readonly string[] {
  if (value === null) return ["null"];
  if (Array.isArray(value)) return ["array"];
  return Number.isInteger(value) ? ["integer", "number"] : [typeof value];
}

/** Without `type`, the type that the other keywords describe. Bounds on counts alone do not restrict the type. */
function typesOf(schema: JsonObject, path: string): readonly string[] {
  const { type } = schema;
  const isPresent = (keyword: string): boolean => schema[keyword] !== undefined;
  if (type === undefined || (Array.isArray(type) && type.length === 0)) {
    if (describingNameKeywords.some(isPresent)) return ["object"];
    if (describingListKeywords.some(isPresent)) return ["array"];
    const isCounted = [...nameKeywords, ...listKeywords].some(isPresent);
    if (isCounted) return ["object", "array", "string", "number", "boolean", "null"];
    return [...textKeywords, ...lengthKeywords].some(isPresent) ? ["string"] : ["value"];
  }
  const types: readonly unknown[] = Array.isArray(type) ? type : [type];
  for (const name of types) {
    if (!typeNames.has(name)) refuseStructuredOutput(`${path}: Unsupported type ${JSON.stringify(name)}`);
  }
  return [...new Set(types as readonly string[])];
}
