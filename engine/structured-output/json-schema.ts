/** Finds the parts of a JSON Schema that are not enforced, so that they are rejected instead of ignored. */
import { makeReferencesLocal } from "./local-references.ts";
import { numberBoundsOf, numberRangeOf, rangeKeywords } from "./number-range.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { conditionKeywords } from "./schema-conditions.ts";
import { SchemaMerger } from "./schema-merge.ts";
import { excludedConstants, NoValue } from "./schema-parts.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

const countingKeywords = ["contains", "minContains", "maxContains"];
/** Where they are strings, they were written as `$ref`. */
const referenceKeywords = ["$ref", "$dynamicRef", "$recursiveRef"];

/** Each of these determines the value alone: other restrictions next to it would be ignored. */
const decisiveKeywords = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
export const nameKeywords = [
  "properties",
  "required",
  "patternProperties",
  "propertyNames",
  "minProperties",
  "maxProperties",
];
export const restKeywords = ["additionalProperties", "unevaluatedProperties"];
export const listKeywords = [
  "items",
  "prefixItems",
  "unevaluatedItems",
  "minItems",
  "maxItems",
  "uniqueItems",
  ...countingKeywords,
];
export const textKeywords = ["format", "pattern"];
export const lengthKeywords = ["minLength", "maxLength"];
const restrictingKeywords = [
  nameKeywords,
  restKeywords,
  listKeywords,
  rangeKeywords,
  "multipleOf",
  textKeywords,
  lengthKeywords,
].flat();

const restricting = new Set([
  "type",
  ...restrictingKeywords,
  ...decisiveKeywords,
  ...conditionKeywords,
  "dependencies",
  ...referenceKeywords,
]);

const keywordsWithSchema = [...restKeywords, "propertyNames", "items", "unevaluatedItems", "contains"];
const keywordsWithSchemas = ["anyOf", "oneOf", "allOf", "prefixItems"];
const keywordsWithNamedSchemas = ["properties", "patternProperties", "$defs", "definitions"] as const;

/** Maximum nesting of schemas. Every level takes a few stack frames. */
const MAX_NESTING = 64;

/** Maximum nesting of lists and objects, also in constants, which are written again: that takes stack for each level. */
const MAX_JSON_LEVELS = 256;

/** Throws EngineError `invalid_argument` that names the place in the schema. */
export function checkJsonSchema(text: string): void {
  const schema = parseJsonSchema(text);
  checkSchema(schema, "json", createSchemaCheck(schema));
}

/** With references to places only. Throws like `checkJsonSchema`. */
export function parseJsonSchema(text: string): unknown {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return refuseStructuredOutput(`json is not JSON: ${(error as Error).message}`, error);
  }
  if (hasMoreLevels(schema, MAX_JSON_LEVELS)) refuseStructuredOutput("json is nested too deeply");
  makeReferencesLocal(schema);
  return schema;
}

/** Does not recurse. */
function hasMoreLevels(value: unknown, maxLevels: number): boolean {
  let level: readonly unknown[] = [value];
  for (let numLevels = 0; level.length > 0; numLevels++) {
    if (numLevels > maxLevels) return true;
    level = level.flatMap((each) =>
      typeof each === "object" && each !== null ? (Object.values(each) as unknown[]) : [],
    );
  }
  return false;
}

/** Of one schema and all within it. */
export interface SchemaCheck {
  readonly checked: WeakSet<object>;
  readonly merger: SchemaMerger;
}

/**
 * @param root The schema that references point into.
 * @param isExclusive Whether a value may match only one schema of `oneOf`.
 */
export function createSchemaCheck(root: unknown, isExclusive = false): SchemaCheck {
  return { checked: new WeakSet(), merger: new SchemaMerger(root, (keyword) => restricting.has(keyword), isExclusive) };
}

/** Throws like `checkJsonSchema`. Skips schemas that were checked before. */
export function checkSchema(schema: unknown, path: string, check: SchemaCheck, levelsLeft: number = MAX_NESTING): void {
  if (typeof schema === "boolean") return;
  if (!isObject(schema))
    return refuseStructuredOutput(`${path} must be a JSON Schema, which is an object or a boolean`);
  if (check.checked.has(schema)) return;
  check.checked.add(schema);
  if (levelsLeft === 0) return refuseStructuredOutput(`${path} is nested too deeply`);
  for (const keyword of referenceKeywords) {
    if (isPresent(schema, keyword) && typeof schema[keyword] !== "string") {
      refuseStructuredOutput(`${path}.${keyword} must be a string`);
    }
  }
  checkConstant(schema.const, `${path}.const`);
  checkConstant(schema.enum, `${path}.enum`);
  const merged = mergeOrNull(schema, path, check);
  if (merged === null) return;
  if (merged !== schema) return checkSchema(merged, path, check, levelsLeft - 1);
  checkConstant(excludedConstants(schema.not), `${path}.not.enum`);
  checkCombinations(schema, path);
  for (const keyword of keywordsWithSchema) {
    const inner = schema[keyword];
    if (inner !== undefined) checkSchema(inner, `${path}.${keyword}`, check, levelsLeft - 1);
  }
  for (const keyword of keywordsWithSchemas) {
    const inner = schema[keyword] ?? [];
    if (!Array.isArray(inner)) return refuseStructuredOutput(`${path}.${keyword} must be a list`);
    inner.forEach((entry, index) => checkSchema(entry, `${path}.${keyword}.${index}`, check, levelsLeft - 1));
  }
  for (const keyword of keywordsWithNamedSchemas) {
    const inner = schema[keyword] ?? {};
    if (!isObject(inner)) return refuseStructuredOutput(`${path}.${keyword} must be an object`);
    for (const [name, entry] of Object.entries(inner))
      checkSchema(entry, `${path}.${keyword}.${name}`, check, levelsLeft - 1);
  }
}

/** Null if no value matches the schema: it may still be an alternative to another one. */
function mergeOrNull(schema: JsonObject, path: string, { merger }: SchemaCheck): JsonObject | null {
  try {
    return merger.merge(schema, path);
  } catch (error) {
    if (error instanceof NoValue) return null;
    throw error;
  }
}

function checkCombinations(schema: JsonObject, path: string): void {
  const [decisive, ...others] = decisiveKeywords.filter((keyword) => isPresent(schema, keyword));
  if (decisive !== undefined) {
    const overruled = others[0] ?? restrictingKeywords.find((keyword) => isPresent(schema, keyword));
    if (overruled !== undefined) refuseCombination(path, decisive, overruled);
  }
  if (isPresent(schema, "multipleOf")) checkMultiples(schema, path);
  else if (numericTypesOf(schema).some((type) => numberRangeOf(schema, type).kind === "unsupported")) {
    const supported = "non-empty ranges of type integer or number";
    refuseStructuredOutput(`${path} has a range of numbers that cannot be enforced; supported are ${supported}`);
  }
  checkNames(schema, path);
}

function checkMultiples(schema: JsonObject, path: string): void {
  const { multipleOf } = schema;
  if (typeof multipleOf !== "number" || !Number.isFinite(multipleOf) || multipleOf <= 0) {
    refuseStructuredOutput(`${path}.multipleOf must be a number above 0`);
  }
  if (!numericTypesOf(schema).every((type) => type === "integer" || type === "number")) {
    refuseStructuredOutput(`${path} has multipleOf beside another type than integer or number, which is not supported`);
  }
  if (numberBoundsOf(schema) === null) refuseStructuredOutput(`${path} has a bound that is not a number`);
}

/** The types to which bounds of numbers apply; the type of the schema if they apply to none. Numbers without a type. */
function numericTypesOf({ type = "number" }: JsonObject): readonly unknown[] {
  const numeric = Array.isArray(type) ? type.filter((name) => name === "integer" || name === "number") : [];
  return numeric.length === 0 ? [type] : [...new Set(numeric)];
}

function checkNames(schema: JsonObject, path: string): void {
  const { propertyNames, additionalProperties, properties = {}, required = [] } = schema;
  if (!Array.isArray(required) || !required.every((name) => typeof name === "string")) {
    return refuseStructuredOutput(`${path}.required must be a list of names`);
  }
  if (isObject(propertyNames)) {
    const names = listedNames(schema);
    const named = ["properties", "patternProperties", ...(names === null ? ["required"] : [])];
    const beside = named.find((keyword) => isPresent(schema, keyword));
    if (beside !== undefined) refuseCombination(path, "propertyNames", beside);
    const forbidden = required.find((name: string) => names?.includes(name) === false);
    if (forbidden !== undefined) {
      refuseStructuredOutput(`${path} requires the property ${forbidden}, which propertyNames does not list`);
    }
  }
  const missing = required.find((name: string) => isObject(properties) && !Object.hasOwn(properties, name));
  if (missing === undefined) return;
  if (isPresent(schema, "patternProperties")) return;
  if (additionalProperties === false || isPresent(schema, "unevaluatedProperties")) {
    refuseStructuredOutput(`${path} requires the property ${missing}, which is not one of its properties`);
  }
}

/** The names that `propertyNames` lists, as in the record types of Zod; null if it describes them in another way. */
export function listedNames({ propertyNames }: JsonObject): readonly string[] | null {
  if (!isObject(propertyNames) || !Array.isArray(propertyNames.enum)) return null;
  return propertyNames.enum.filter((name) => typeof name === "string");
}

/** Constants become text, so their numbers must be those of the request. */
function checkConstant(value: unknown, path: string, levelsLeft: number = MAX_NESTING): void {
  if (typeof value === "number" && !isExactText(value)) {
    const advice = "integers beyond 2^53 and numbers beyond the range of 64 bits cannot be enforced; use a string";
    refuseStructuredOutput(`${path} is ${value}: ${advice}`);
  }
  if (typeof value !== "object" || value === null) return;
  if (levelsLeft === 0) refuseStructuredOutput(`${path} is nested too deeply`);
  for (const [name, inner] of Object.entries(value)) checkConstant(inner, `${path}.${name}`, levelsLeft - 1);
}

/** Integers from here on are written with an exponent, and so they were in the request. */
const FIRST_EXPONENTIAL = 1e21;

/** JSON.stringify writes all digits of large integers, of which JSON.parse has read the first 16 only. */
function isExactText(value: number): boolean {
  const magnitude = Math.abs(value);
  return Number.isFinite(value) && (magnitude <= Number.MAX_SAFE_INTEGER || magnitude >= FIRST_EXPONENTIAL);
}

/** For keywords of which one would be ignored. Throws EngineError `invalid_argument`. */
function refuseCombination(path: string, left: string, right: string): never {
  return refuseStructuredOutput(`${path} has the keywords ${left} and ${right} together, which is not supported`);
}

function isPresent(schema: JsonObject, keyword: string): boolean {
  return schema[keyword] !== undefined;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
