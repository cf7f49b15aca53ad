/** Turns JSON Schemas into languages: the texts of the values that they describe. */
import { EngineError } from "../contract/errors.ts";
import { alternativesOf, literalOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { JsonArrayWriter } from "./json-array-language.ts";
import { JsonNumberWriter } from "./json-number-language.ts";
import { JsonObjectWriter } from "./json-object-language.ts";
import { checkSchema, createSchemaCheck, isObject, lengthKeywords, parseJsonSchema } from "./json-schema.ts";
import type { JsonObject, SchemaCheck } from "./json-schema.ts";
import { JsonStringWriter } from "./json-string-language.ts";
import { constantOf, jsonRulesFor, rule } from "./json-text.ts";
import { patternOfBoth, patternOfOthers } from "./pattern-conditions.ts";
import { noText, withoutImpossibleParts } from "./possible-texts.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { hasType } from "./schema-constants.ts";
import { excludedConstants, NoValue } from "./schema-parts.ts";
import { schemaAt } from "./schema-references.ts";
import { constantsByType, typesOf } from "./schema-types.ts";

/** Maximum nesting of alternatives and references that list values. */
const MAX_LISTED_LEVELS = 16;

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
  readonly #arrays: JsonArrayWriter;
  readonly #strings: JsonStringWriter;
  readonly #numbers: JsonNumberWriter;
  /** A reference may point outside the schema's own keywords, to something not yet checked. */
  readonly #check: SchemaCheck;
  /** By the names of their rules. */
  readonly #pending: [name: string, read: () => Expression][] = [];
  readonly #read = new Map<JsonObject, Expression>();
  #numMerged = 0;
  /** Why a part of the schema allows no value; null if all do. */
  #impossibility: string | null = null;

  constructor(schema: unknown, isCompact: boolean, check: SchemaCheck) {
    this.#schema = schema;
    this.#check = check;
    this.#rules = new Map(jsonRulesFor(isCompact));
    // Writers combine schemas that were checked into others.
    const valueOf = (inner: unknown, path: string): Expression => {
      checkSchema(inner, path, check);
      return this.#valueOf(inner, path);
    };
    const nothing = (reason: string): Expression => this.#nothing(reason);
    this.#strings = new JsonStringWriter(this.#rules, nothing);
    this.#numbers = new JsonNumberWriter(this.#rules, nothing);
    this.#arrays = new JsonArrayWriter({
      rules: this.#rules,
      valueOf,
      valuesOf: (inner, path) => this.#valuesOf(inner, path),
      nothing,
    });
    this.#objects = new JsonObjectWriter({
      rules: this.#rules,
      valueOf,
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
        return this.#arrays.write(schema, path);
      case "string":
        return this.#strings.write(schema, path);
      case "integer":
      case "number":
        return this.#numbers.write(type, schema, path);
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
        return this.#numbers.writeExcept(excluded as number[], type, schema, path);
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
}
