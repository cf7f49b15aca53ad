/** Refuses JSON Schemas of which the grammar engine would silently enforce only a part. */
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
const keywordsWithNamedSchemas = ["properties", "patternProperties", "$defs", "definitions"];

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

function checkSchema(schema: unknown, path: string, levelsLeft: number): void {
  if (schema === true) return;
  if (!isObject(schema)) return refuseStructuredOutput(`${path} must be a JSON Schema, which is an object or true`);
  if (levelsLeft === 0) return refuseStructuredOutput(`${path} is nested too deeply`);
  for (const keyword of unsupportedKeywords) {
    if (isPresent(schema, keyword))
      refuseStructuredOutput(`${path} has the keyword ${keyword}, which is not supported`);
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
  if (Array.isArray(schema.allOf) && schema.allOf.length > 1) {
    refuseStructuredOutput(`${path}.allOf may have one entry, got ${schema.allOf.length}`);
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

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
