/** What the grammar engine is told of a JSON Schema, and what it must not be told since it would not enforce it. */
import { toEbnf } from "./choice-grammar.ts";
import { toEnginePattern } from "./engine-pattern.ts";
import { numberRangeOf } from "./number-range.ts";
import { refuseStructuredOutput } from "./refusal.ts";

type JsonObject = Readonly<Record<string, unknown>>;

const conditionalKeywords = ["not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"];
const countingKeywords = ["multipleOf", "uniqueItems", "contains", "minContains", "maxContains"];
const dynamicKeywords = ["$dynamicRef", "$recursiveRef"];
/** Keywords that restrict values in a way that is not enforced. */
const unsupportedKeywords = [...conditionalKeywords, ...countingKeywords, ...dynamicKeywords];

/** Each of these decides alone what a value looks like: restrictions beside it would be ignored. */
const decisiveKeywords = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
const nameKeywords = ["properties", "required", "patternProperties", "propertyNames", "minProperties", "maxProperties"];
const restKeywords = ["additionalProperties", "unevaluatedProperties"];
const listKeywords = ["items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"];
const rangeKeywords = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/** Of these the first that is present is enforced. */
const textKeywords = ["format", "pattern"];
const lengthKeywords = ["minLength", "maxLength"];
const restrictingKeywords = [
  nameKeywords,
  restKeywords,
  listKeywords,
  rangeKeywords,
  textKeywords,
  lengthKeywords,
].flat();

const keywordsWithSchema = [...restKeywords, "propertyNames", "items", "unevaluatedItems"];
const keywordsWithSchemas = ["anyOf", "oneOf", "allOf", "prefixItems"];
const keywordsWithNamedSchemas = ["properties", "patternProperties", "$defs", "definitions"] as const;

/** Throws EngineError `invalid_argument` that names the place in the schema. */
export function checkJsonSchema(text: string, maxNesting: number): void {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return refuseStructuredOutput(`json is not JSON: ${(error as Error).message}`, error);
  }
  checkSchema(schema, "json", maxNesting);
}

/** A schema as XGrammar is told it. */
export interface EngineSchema {
  readonly schema: string;
  /** In EBNF, by the strings that stand for them in the schema as constants. Each defines what it is named. */
  readonly rules: ReadonlyMap<string, string>;
}

/**
 * The schema, which was checked, in a form that is enforced rightly: patterns and names in XGrammar's spelling; patterns
 * for bounds of length, with which it would let control characters into strings; rules for lists and ranges of values;
 * what it would overlook made plain. Throws EngineError `invalid_argument`.
 */
export function toEngineSchema(text: string): EngineSchema {
  let prefix = "own_rule_";
  while (text.includes(prefix)) prefix += "_";
  const rules = new Map<string, string>();
  const addRule: AddRule = (define) => {
    const name = `${prefix}${rules.size}_`;
    rules.set(name, define(name));
    return { const: name };
  };
  return { schema: JSON.stringify(spellSchema(JSON.parse(text), addRule)), rules };
}

/** The schema that stands for the rule, whose text `define` makes of its name. */
type AddRule = (define: (name: string) => string) => JsonObject;

function spellSchema(schema: unknown, addRule: AddRule): unknown {
  if (!isObject(schema)) return schema;
  const range = numberRangeOf(schema);
  if (range.kind === "bounded") return addRule((name) => `${name} ::= ${range.rule}`);
  if (Array.isArray(schema.enum) && schema.enum.length > 1 && schema.enum.every(isScalar)) {
    return addOneOf(schema.enum, addRule);
  }
  const options = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(options) && options.length > 1 && options.every(isScalarConstant)) {
    return addOneOf(
      options.map((option: JsonObject) => option.const),
      addRule,
    );
  }
  if (isObject(schema.propertyNames) && isObject(schema.additionalProperties)) {
    const { propertyNames, additionalProperties, ...others } = schema;
    const patternProperties = { [propertyNames.pattern as string]: additionalProperties };
    return spellSchema({ ...others, patternProperties, additionalProperties: false }, addRule);
  }
  const spelled: Record<string, unknown> = { ...schema };
  if (typeof schema.pattern === "string") spelled.pattern = toEnginePattern(schema.pattern, { isInJson: true });
  const { minLength = 0, maxLength = "" } = schema;
  if (isBound(minLength) && (maxLength === "" ? minLength > 0 : isBound(maxLength) && minLength <= maxLength)) {
    delete spelled.minLength;
    delete spelled.maxLength;
    spelled.pattern = toEnginePattern(`[^"]{${minLength},${maxLength as number | ""}}`, { isInJson: true });
  }
  if (schema.type === undefined && describesText(schema)) spelled.type = "string";
  if (Array.isArray(schema.required)) {
    Object.assign(spelled, withRequired(schema, schema.required));
    spelled.required = schema.required.map(escapeName);
  }
  for (const keyword of keywordsWithSchema)
    if (keyword in spelled) spelled[keyword] = spellSchema(spelled[keyword], addRule);
  for (const keyword of keywordsWithSchemas) {
    if (Array.isArray(schema[keyword])) spelled[keyword] = schema[keyword].map((inner) => spellSchema(inner, addRule));
  }
  for (const keyword of keywordsWithNamedSchemas) {
    const named = spelled[keyword];
    if (!isObject(named)) continue;
    const spellName = spellNameOf[keyword];
    spelled[keyword] = Object.fromEntries(
      Object.entries(named).map(([name, inner]) => [spellName(name), spellSchema(inner, addRule)]),
    );
  }
  return spelled;
}

function addOneOf(values: readonly unknown[], addRule: AddRule): JsonObject {
  const texts = values.map((value) => JSON.stringify(value));
  return addRule((name) => toEbnf(texts, name));
}

/** Whether a schema without a type is about texts, so that no other value is left free by leaving them out. */
function describesText(schema: JsonObject): boolean {
  const isPresentHere = (keyword: string): boolean => isPresent(schema, keyword);
  return (
    [...textKeywords, ...lengthKeywords].some(isPresentHere) && ![...nameKeywords, ...listKeywords].some(isPresentHere)
  );
}

/** What changes where properties are required that are not described: XGrammar would leave them out. */
function withRequired(schema: JsonObject, required: readonly string[]): JsonObject {
  const { additionalProperties = {} } = schema;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const missing = required.filter((name) => !Object.hasOwn(properties, name));
  if (missing.length === 0) return {};
  const described = { ...properties, ...Object.fromEntries(missing.map((name) => [name, additionalProperties])) };
  // An object without a description may have any other properties.
  return { properties: described, ...(schema.properties === undefined && { additionalProperties }) };
}

/** XGrammar puts the names of properties as they are between the quotes of JSON strings, inside strings of EBNF. */
function escapeName(name: string): string {
  return JSON.stringify(name)
    .slice(1, -1)
    .replaceAll(/["\\]/g, String.raw`\$&`);
}

const spellNameOf = {
  properties: escapeName,
  patternProperties: (name: string) => toEnginePattern(name, { isInJson: true }),
  $defs: (name: string) => name,
  definitions: (name: string) => name,
} as const;

function checkSchema(schema: unknown, path: string, levelsLeft: number): void {
  if (schema === true) return;
  if (!isObject(schema)) return refuseStructuredOutput(`${path} must be a JSON Schema, which is an object or true`);
  if (levelsLeft === 0) return refuseStructuredOutput(`${path} is nested too deeply`);
  for (const keyword of unsupportedKeywords) {
    if (isPresent(schema, keyword))
      refuseStructuredOutput(`${path} has the keyword ${keyword}, which is not supported`);
  }
  // XGrammar takes any value for what another reference leads to.
  if (isPresent(schema, "$ref") && !(typeof schema.$ref === "string" && /^#(?:\/|$)/.test(schema.$ref))) {
    refuseStructuredOutput(`${path}.$ref must be # or begin with #/, the places of this schema`);
  }
  checkCombinations(schema, path);
  for (const keyword of keywordsWithSchema) {
    const inner = schema[keyword];
    if (inner !== undefined && inner !== false) checkSchema(inner, `${path}.${keyword}`, levelsLeft - 1);
  }
  for (const keyword of keywordsWithSchemas) {
    const inner = schema[keyword] ?? [];
    if (!Array.isArray(inner)) return refuseStructuredOutput(`${path}.${keyword} must be a list`);
    inner.forEach((entry, index) => checkSchema(entry, `${path}.${keyword}.${index}`, levelsLeft - 1));
  }
  for (const keyword of keywordsWithNamedSchemas) {
    const inner = schema[keyword] ?? {};
    if (!isObject(inner)) return refuseStructuredOutput(`${path}.${keyword} must be an object`);
    for (const [name, entry] of Object.entries(inner)) checkSchema(entry, `${path}.${keyword}.${name}`, levelsLeft - 1);
  }
}

function checkCombinations(schema: JsonObject, path: string): void {
  const [decisive, ...others] = decisiveKeywords.filter((keyword) => isPresent(schema, keyword));
  if (decisive !== undefined) {
    const overruled = others[0] ?? restrictingKeywords.find((keyword) => isPresent(schema, keyword));
    if (overruled !== undefined) refuseCombination(path, decisive, overruled);
  }
  const length = lengthKeywords.filter((keyword) => isPresent(schema, keyword)).slice(0, 1);
  const [text, ignored] = [...textKeywords.filter((keyword) => isPresent(schema, keyword)), ...length];
  if (ignored !== undefined) refuseCombination(path, text, ignored);
  if (numberRangeOf(schema).kind === "unsupported") {
    const supported = "those of type integer or number that is not empty, the latter between integers";
    refuseStructuredOutput(`${path} has a range of numbers that cannot be enforced; supported are ${supported}`);
  }
  checkNames(schema, path);
  if (Array.isArray(schema.allOf) && schema.allOf.length > 1) {
    refuseStructuredOutput(`${path}.allOf may have one entry, got ${schema.allOf.length}`);
  }
}

function checkNames(schema: JsonObject, path: string): void {
  const { propertyNames, additionalProperties, properties = {}, required = [] } = schema;
  if (isObject(propertyNames)) {
    const named = ["properties", "patternProperties", "required"].find((keyword) => isPresent(schema, keyword));
    if (named !== undefined) refuseCombination(path, "propertyNames", named);
    if (isObject(additionalProperties) && typeof propertyNames.pattern !== "string") {
      refuseCombination(path, "propertyNames without a pattern", "additionalProperties");
    }
  }
  if (!Array.isArray(required) || !required.every((name) => typeof name === "string")) {
    return refuseStructuredOutput(`${path}.required must be a list of names`);
  }
  const missing = required.find((name: string) => isObject(properties) && !Object.hasOwn(properties, name));
  if (missing === undefined) return;
  if (isPresent(schema, "patternProperties")) refuseCombination(path, "patternProperties", "required");
  if (additionalProperties === false || isPresent(schema, "unevaluatedProperties")) {
    refuseStructuredOutput(`${path} requires the property ${missing}, which is none of its properties`);
  }
}

function refuseCombination(path: string, left: string, right: string): never {
  return refuseStructuredOutput(`${path} has the keywords ${left} and ${right} together, which is not supported`);
}

/** A keyword that is switched off (`uniqueItems: false`) restricts nothing. */
function isPresent(schema: JsonObject, keyword: string): boolean {
  const value = schema[keyword];
  return value !== undefined && !(keyword === "uniqueItems" && value === false);
}

function isScalar(value: unknown): boolean {
  return typeof value !== "object" || value === null;
}

function isScalarConstant(schema: unknown): schema is JsonObject {
  return isObject(schema) && schema.const !== undefined && isScalar(schema.const);
}

function isBound(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
