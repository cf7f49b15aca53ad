/** Turns JSON Schemas into languages: the texts of the values that they describe. */
import { EngineError } from "../contract/errors.ts";
import { countedItems, MAX_COUNTED_PLACES, numCountedPlaces } from "./counted-items.ts";
import type { CountedItems } from "./counted-items.ts";
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { readGrammar } from "./grammar-reader.ts";
import { countBounds } from "./json-bounds.ts";
import type { CountBounds } from "./json-bounds.ts";
import { JsonObjectWriter } from "./json-object-language.ts";
import {
  checkSchema,
  createSchemaCheck,
  isObject,
  lengthKeywords,
  listKeywords,
  nameKeywords,
  parseJsonSchema,
  restKeywords,
  textKeywords,
} from "./json-schema.ts";
import type { JsonObject, SchemaCheck } from "./json-schema.ts";
import { JsonStringWriter } from "./json-string-language.ts";
import { comma, constantOf, jsonRulesFor, repeat, rule, whitespace } from "./json-text.ts";
import { multiplesOf } from "./multiples.ts";
import { isEmptyRange, numberBoundsOf, numberRangeOf, rangeKeywords } from "./number-range.ts";
import { patternOfBoth, patternOfOthers } from "./pattern-conditions.ts";
import { noText, withoutImpossibleParts } from "./possible-texts.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { hasType } from "./schema-constants.ts";
import { excludedConstants, NoValue } from "./schema-merge.ts";
import { schemaAt } from "./schema-references.ts";
import { MAX_UNIQUE_PLACES, uniqueItems } from "./unique-items.ts";

const allTypes = ["object", "array", "string", "number", "boolean", "null"];
const typeNames = new Set<unknown>([...allTypes, "integer"]);

/**
 * Maximum number of characters of the grammars of all different ranges of numbers. One of 64-bit numbers has 1,300, one of
 * percentages 60. This many take some tens of milliseconds.
 */
const MAX_RANGE_CHARACTERS = 100_000;

/** Maximum nesting of alternatives and references that list values. */
const MAX_LISTED_LEVELS = 16;

const constantsByType: ReadonlyMap<string, readonly unknown[]> = new Map([
  ["boolean", [true, false]],
  ["null", [null]],
]);

const uniqueAdvice = "leave it out, and remove repeated items from the answer";

/** Maximum number of digits in all places of the multiples of all schemas. This many take some tens of milliseconds. */
const MAX_MULTIPLES_SIZE = 30_000;

/**
 * Expects a schema checked by `checkJsonSchema`. Properties come in the order of their description, with a bounded
 * amount of white space wherever JSON allows it. Throws EngineError `invalid_argument`.
 */
export function readJsonSchema(text: string, isCompact = false): Language {
  const schema = parseJsonSchema(text);
  return (
    (text.includes('"oneOf"') ? tryReadExclusively(schema, isCompact) : null) ??
    new SchemaReader(schema, isCompact, createSchemaCheck(schema)).read()
  );
}

/** With a value in only one alternative of each `oneOf`. Null if that cannot be enforced. */
function tryReadExclusively(schema: unknown, isCompact: boolean): Language | null {
  const check = createSchemaCheck(schema, true);
  try {
    checkSchema(schema, "json", check);
    return new SchemaReader(schema, isCompact, check).read();
  } catch (error) {
    if (error instanceof EngineError) return null;
    throw error;
  }
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
  readonly #strings: JsonStringWriter;
  /** A reference may point outside the schema's own keywords, to something not yet checked. */
  readonly #check: SchemaCheck;
  /** By the names of their rules. */
  readonly #pending: [name: string, read: () => Expression][] = [];
  readonly #read = new Map<JsonObject, Expression>();
  #numRangeCharacters = 0;
  #multiplesSize = 0;
  #numUniquePlaces = 0;
  #numMerged = 0;
  #numCountedPlaces = 0;
  /** Why a part of the schema allows no value; null if all do. */
  #impossibility: string | null = null;

  constructor(schema: unknown, isCompact: boolean, check: SchemaCheck) {
    this.#schema = schema;
    this.#check = check;
    this.#rules = new Map(jsonRulesFor(isCompact));
    this.#strings = new JsonStringWriter(this.#rules);
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
    const language = { root, rules: this.#rules };
    if (this.#impossibility === null) return language;
    return withoutImpossibleParts(language) ?? refuseStructuredOutput(this.#impossibility);
  }

  /** No text. The first reason counts, if it turns out that the whole schema allows no value. */
  #nothing(reason: string): Expression {
    this.#impossibility ??= reason;
    return noText;
  }

  /** Reads each schema once, as several names that are required without a schema of their own share one. */
  #valueOf(schema: unknown, path: string): Expression {
    if (schema === false) return this.#nothing(`${path} allows no value`);
    if (!isObject(schema)) return rule("value");
    let expression = this.#read.get(schema);
    if (expression === undefined) this.#read.set(schema, (expression = this.#expressionOf(schema, path)));
    return expression;
  }

  /** Merged parts become a rule, because they may refer to the schema itself. */
  #expressionOf(schema: JsonObject, path: string): Expression {
    const merged = this.#merge(schema, path);
    if (merged === null) return noText;
    if (merged !== schema) {
      const name = `merged ${this.#numMerged++}`;
      this.#rules.set(name, rule(name));
      this.#pending.push([name, () => this.#valueOf(merged, path)]);
      return rule(name);
    }
    if (schema.$ref !== undefined) return this.#referredTo(schema.$ref as string, path);
    if (schema.const !== undefined) return literalOf(constantOf(schema.const));
    if (schema.enum !== undefined)
      return this.#oneOf("enum", schema.enum, path, (value) => literalOf(constantOf(value)));
    for (const keyword of ["anyOf", "oneOf"] as const) {
      if (schema[keyword] === undefined) continue;
      return this.#oneOf(keyword, schema[keyword], path, (option, place) => this.#valueOf(option, place));
    }
    const [only] = Array.isArray(schema.allOf) ? schema.allOf : [];
    if (only !== undefined) return this.#valueOf(only, `${path}.allOf.0`);
    const types = typesOf(schema, path);
    return alternativesOf(types.map((type) => this.#typed(type, schema, path)));
  }

  /** Null if no value matches. */
  #merge(schema: JsonObject, path: string): JsonObject | null {
    try {
      return this.#check.merger.merge(schema, path);
    } catch (error) {
      if (!(error instanceof NoValue)) throw error;
      this.#nothing(error.message);
      return null;
    }
  }

  /** The described values that are strings. */
  #nameOf(given: unknown, path: string): Expression {
    if (given === false) return this.#nothing(`${path} allows no name`);
    if (!isObject(given)) return rule("string");
    const schema = this.#merge(given, path);
    if (schema === null) return noText;
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

  #typed(type: string, given: JsonObject, path: string): Expression {
    const { not, ...schema } = given;
    const excluded = excludedConstants(not).filter((value) => hasType(value, type));
    if (excluded.length > 0) return this.#typedExcept(excluded, type, schema, path);
    switch (type) {
      case "object":
        return this.#objects.write(schema, path);
      case "array":
        return this.#arrayOf(schema, path);
      case "string":
        return this.#strings.write(schema, path);
      case "integer":
      case "number":
        return this.#numberOf(type, schema, path);
      default:
        return rule(type);
    }
  }

  /** Values of a type but some. */
  #typedExcept(excluded: readonly unknown[], type: string, schema: JsonObject, path: string): Expression {
    switch (type) {
      case "string": {
        const isRestricted = ["pattern", ...lengthKeywords].some((keyword) => schema[keyword] !== undefined);
        if (isRestricted) {
          const others = patternOfOthers(excluded as string[]);
          const pattern = typeof schema.pattern === "string" ? patternOfBoth(schema.pattern, others) : others;
          return this.#strings.write({ ...schema, pattern }, path);
        }
        if (schema.format !== undefined) {
          return refuseStructuredOutput(`${path} has the keywords not and format together, which is not supported`);
        }
        return this.#strings.writeExcept(excluded as string[], path);
      }
      case "integer":
      case "number":
        return this.#numberExcept(excluded as number[], type, schema, path);
      case "boolean":
      case "null": {
        const left = constantsByType.get(type)!.filter((constant) => !excluded.includes(constant));
        if (left.length === 0) return this.#nothing(`${path} allows no value`);
        return alternativesOf(left.map((constant) => literalOf(constantOf(constant))));
      }
      default: {
        const advice = `which is not supported; describe the values of type ${type} instead`;
        return refuseStructuredOutput(`${path} excludes a constant of type ${type}, ${advice}`);
      }
    }
  }

  /** The ranges between excluded numbers. */
  #numberExcept(excluded: readonly number[], type: "integer" | "number", schema: JsonObject, path: string): Expression {
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
      return [this.#numberOf(type, range, path)];
    });
    return options.length === 0 ? this.#nothing(`${path} allows no value`) : alternativesOf(options);
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

  #shared(name: string, write: () => Expression): Expression {
    if (!this.#rules.has(name)) this.#rules.set(name, write());
    return rule(name);
  }

  /** Items that are all different: only those of which there are few can be enforced. */
  #uniqueArrayOf(items: unknown, numFirstItems: number, bounds: CountBounds, path: string): Expression {
    const values = numFirstItems > 0 ? null : this.#valuesOf(items, `${path}.items`);
    if (values === null) {
      const supported = "supported only for items that enum, const or boolean list";
      return refuseStructuredOutput(`${path} has uniqueItems, which is ${supported}; ${uniqueAdvice}`);
    }
    const unique = uniqueItems(values, bounds, MAX_UNIQUE_PLACES - this.#numUniquePlaces);
    if (unique.kind === "too-large") {
      const problem = `${values.length} values whose orders take too many parts`;
      return refuseStructuredOutput(`${path} has uniqueItems with ${problem}; lower maxItems, or ${uniqueAdvice}`);
    }
    if (unique.kind === "none") {
      if (bounds.min > 0) return this.#nothing(`${path} requires ${bounds.min} different items of ${values.length}`);
      return sequenceOf([literalOf("["), whitespace, literalOf("]")]);
    }
    this.#numUniquePlaces += unique.numPlaces;
    const content = sequenceOf([unique.expression, whitespace]);
    return sequenceOf([literalOf("["), whitespace, bounds.min === 0 ? repeat(content, 0, 1) : content, literalOf("]")]);
  }

  /** Items that match `contains` are counted. */
  #countedArrayOf(
    schema: JsonObject,
    first: readonly unknown[],
    others: unknown,
    length: CountBounds,
    path: string,
  ): Expression {
    const { contains, minContains = 1, maxContains } = schema;
    const counted = countBounds({ minContains, maxContains }, "minContains", "maxContains", path);
    const isOpen = counted.max === Infinity;
    const schemas = [...first, others].map((item) => ({
      counted: { allOf: [item, contains] },
      other: isOpen ? item : { allOf: [item, { not: contains }] },
    }));
    const at = (index: number): (typeof schemas)[number] => schemas[Math.min(index, first.length)]!;
    const items: CountedItems = {
      length,
      counted,
      numFirst: first.length,
      countedAt: (index) => this.#valueOf(at(index).counted, `${path}.contains`),
      otherAt: (index) => this.#valueOf(at(index).other, `${path}.items`),
    };
    this.#numCountedPlaces += numCountedPlaces(items);
    if (this.#numCountedPlaces > MAX_COUNTED_PLACES) {
      refuseStructuredOutput(`${path} has contains beside bounds that take too many parts; make the bounds smaller`);
    }
    const lists = countedItems(items, `${path} (list ${this.#numCountedPlaces})`, this.#rules);
    // Which of the counts can end is found with all other parts that no value matches.
    this.#impossibility ??= `${path} has no list with so many items that match contains`;
    return lists;
  }

  /** All values of a schema that lists them; null for any other. */
  #valuesOf(given: unknown, path: string, levelsLeft: number = MAX_LISTED_LEVELS): readonly unknown[] | null {
    if (given === false) return [];
    if (!isObject(given) || levelsLeft === 0) return null;
    const schema = this.#merge(given, path);
    if (schema === null) return [];
    if (schema.$ref !== undefined) {
      const reference = schema.$ref as string;
      return this.#valuesOf(schemaAt(this.#schema, reference, path), reference, levelsLeft - 1);
    }
    if (schema.const !== undefined) return [schema.const];
    if (Array.isArray(schema.enum)) return schema.enum;
    const options = schema.anyOf ?? schema.oneOf ?? schema.allOf;
    if (Array.isArray(options)) {
      const values = options.map((option) => this.#valuesOf(option, path, levelsLeft - 1));
      return values.includes(null) ? null : values.flatMap((each) => each!);
    }
    const values = typesOf(schema, path).map((type) => constantsByType.get(type) ?? null);
    const excluded = excludedConstants(schema.not);
    return values.includes(null) ? null : values.flatMap((each) => each!).filter((value) => !excluded.includes(value));
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
    if (schema.contains !== undefined) {
      if (schema.uniqueItems === true) {
        refuseStructuredOutput(`${path} has the keywords contains and uniqueItems together, which is not supported`);
      }
      const length = { min: Math.max(min, first.length), max: others === false ? first.length : max };
      return this.#countedArrayOf(schema, first, others, length, path);
    }
    if (schema.uniqueItems === true && mostItems > 1)
      return this.#uniqueArrayOf(others, first.length, { min, max }, path);
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

/** Of the bounds that are numbers. */
function outermost(choose: (...bounds: number[]) => number, ...bounds: readonly unknown[]): number | undefined {
  const numbers = bounds.filter((bound) => typeof bound === "number");
  return numbers.length === 0 ? undefined : choose(...numbers);
}

const describingNameKeywords = [...nameKeywords, ...restKeywords].filter((keyword) => !/^(?:min|max)/.test(keyword));
const describingListKeywords = listKeywords.filter((keyword) => !/^(?:min|max)/.test(keyword));

/** Without `type`, the type that the other keywords describe. Bounds on counts alone do not restrict the type. */
function typesOf(schema: JsonObject, path: string): readonly string[] {
  const { type } = schema;
  const isPresent = (keyword: string): boolean => schema[keyword] !== undefined;
  if (type === undefined || (Array.isArray(type) && type.length === 0)) {
    if (describingNameKeywords.some(isPresent)) return ["object"];
    if (describingListKeywords.some(isPresent)) return ["array"];
    const isCounted = [...nameKeywords, ...listKeywords].some(isPresent);
    if (isCounted) return allTypes;
    if ([...textKeywords, ...lengthKeywords].some(isPresent)) return ["string"];
    if ([...rangeKeywords, "multipleOf"].some(isPresent)) return ["number"];
    return schema.not === undefined ? ["value"] : allTypes;
  }
  const types: readonly unknown[] = Array.isArray(type) ? type : [type];
  for (const name of types) {
    if (!typeNames.has(name)) refuseStructuredOutput(`${path}: Unsupported type ${JSON.stringify(name)}`);
  }
  return [...new Set(types as readonly string[])];
}
