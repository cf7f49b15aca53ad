/** Merges the schemas of `allOf`, and keywords beside `$ref`, `anyOf` and `oneOf`, into one schema. */
import { isDeepStrictEqual } from "node:util";

import { leastCommonMultiple } from "./multiples.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { schemaAt } from "./schema-references.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Maximum number of schemas and properties in all merges of a schema: parts that refer to themselves can be merged
 * without end. This many take a tenth of a second, most of it in slices.
 */
const MAX_MERGED = 4000;

const lowerBounds = new Set(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"]);
const upperBounds = new Set(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"]);
const describingKeywords = new Set([
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);
const keywordsWithNames = new Set(["$schema", "$id", "$comment", "$defs", "definitions"]);
const alternatives = ["anyOf", "oneOf"] as const;

/** Mutable: counts its work. */
export class SchemaMerger {
  readonly #root: unknown;
  readonly #isRestricting: (keyword: string) => boolean;
  #numMerged = 0;

  /** @param isRestricting Whether a keyword restricts values. */
  constructor(root: unknown, isRestricting: (keyword: string) => boolean) {
    this.#root = root;
    this.#isRestricting = isRestricting;
  }

  /**
   * The schema that allows what all parts of a schema allow; the schema itself if it has one part. Throws EngineError
   * `invalid_argument` for parts that cannot be merged.
   */
  merge(schema: JsonObject, path: string): JsonObject {
    const { allOf } = schema;
    const hasParts = Array.isArray(allOf) && allOf.length > 1;
    const isMerged = hasParts || this.#isBesideOthers(schema, "allOf") || this.#isBesideOthers(schema, "$ref");
    const merged = isMerged ? mergeAll(this.#partsOf(schema, path), path) : schema;
    const keyword = alternatives.find((name) => this.#isBesideOthers(merged, name));
    if (keyword === undefined) return merged;
    const { [keyword]: options, unevaluatedProperties, unevaluatedItems, ...others } = merged;
    if (!Array.isArray(options)) return merged;
    this.#count(options.length, path);
    const possible = options.filter((option: unknown) => mayHaveTypes(option, others.type));
    if (options.length > 0 && possible.length === 0)
      refuseStructuredOutput(`${path}.${keyword} has no entry of its type`);
    // `unevaluated...` are about the properties and items of all parts.
    const beside = (option: unknown) => ({ unevaluatedProperties, unevaluatedItems, allOf: [others, option] });
    return { [keyword]: possible.map(beside) };
  }

  #isBesideOthers(schema: JsonObject, keyword: string): boolean {
    if (schema[keyword] === undefined) return false;
    return Object.keys(schema).some(
      (other) => other !== keyword && schema[other] !== undefined && this.#isRestricting(other),
    );
  }

  /** Follows `$ref` and `allOf`, then the schema's own keywords. Each schema is one part, however often it is mentioned. */
  #partsOf(schema: JsonObject, path: string): readonly JsonObject[] {
    const parts: JsonObject[] = [];
    const pending: { readonly schema: unknown; readonly isPart: boolean }[] = [{ schema, isPart: false }];
    const seen = new Set<unknown>();
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (next.isPart) parts.push(next.schema as JsonObject);
      if (next.isPart || next.schema === true || seen.has(next.schema)) continue;
      seen.add(next.schema);
      if (!isObject(next.schema)) return refuseStructuredOutput(`${path}.allOf has an entry that is not a JSON Schema`);
      const { allOf, $ref, ...part } = next.schema;
      this.#count(1 + Object.keys(part.properties ?? {}).length, path);
      pending.push({ schema: part, isPart: true });
      if (Array.isArray(allOf)) for (const entry of allOf.toReversed()) pending.push({ schema: entry, isPart: false });
      if (typeof $ref === "string") pending.push({ schema: schemaAt(this.#root, $ref, path), isPart: false });
    }
    return parts;
  }

  #count(num: number, path: string): void {
    this.#numMerged += num;
    if (this.#numMerged > MAX_MERGED) {
      refuseStructuredOutput(`json is too large: allOf and keywords beside $ref up to ${path} have too many parts`);
    }
  }
}

function mergeAll(parts: readonly JsonObject[], path: string): JsonObject {
  const merged = new Map<string, unknown>();
  const properties = new Map<string, unknown>();
  const required = new Set<unknown>();
  for (const part of parts) {
    for (const [keyword, value] of Object.entries(part)) {
      if (value === undefined) continue;
      if (keyword === "properties" && isObject(value)) addProperties(properties, value);
      else if (keyword === "required" && Array.isArray(value)) for (const name of value) required.add(name);
      else merged.set(keyword, merged.has(keyword) ? mergeValues(keyword, merged.get(keyword), value, path) : value);
    }
  }
  // The last part is the schema itself, whose `unevaluated...` are about all parts.
  const rest = parts.map((part, index) => (index < parts.length - 1 ? closed(part) : part));
  for (const part of rest) {
    requireSameNames(part, properties, path);
    for (const other of rest) if (other !== part) requireSameRest(part, other, path);
  }
  if (properties.size > 0) merged.set("properties", Object.fromEntries(properties));
  if (required.size > 0) merged.set("required", [...required]);
  return Object.fromEntries(merged);
}

function addProperties(properties: Map<string, unknown>, further: JsonObject): void {
  for (const [name, schema] of Object.entries(further)) {
    const other = properties.get(name);
    const isOne = other === undefined || isDeepStrictEqual(other, schema);
    properties.set(name, isOne ? schema : { allOf: [other, schema] });
  }
}

/** `additionalProperties` of a part is about all properties that the part itself does not list. */
function requireSameNames(part: JsonObject, all: ReadonlyMap<string, unknown>, path: string): void {
  const { additionalProperties, properties, patternProperties } = part;
  const isOpen = additionalProperties === undefined || additionalProperties === true;
  if (isOpen && patternProperties === undefined) return;
  const listed = isObject(properties) ? properties : {};
  for (const name of all.keys()) {
    if (Object.hasOwn(listed, name)) continue;
    const keyword = isOpen ? "patternProperties" : "additionalProperties";
    const problem = `a part with ${keyword} that does not list the property ${name} of another part`;
    refuseStructuredOutput(`${path} has ${problem}, which is not supported; leave ${keyword} out`);
  }
}

/** A part with its rules for further properties and items under the names that are about the part alone. */
function closed({ unevaluatedProperties, unevaluatedItems, ...part }: JsonObject): JsonObject {
  return {
    ...part,
    additionalProperties: part.additionalProperties ?? unevaluatedProperties,
    items: part.items ?? unevaluatedItems,
  };
}

/** Rules for further properties and items of a part are about those that the part itself does not describe. */
function requireSameRest(part: JsonObject, other: JsonObject, path: string): void {
  for (const [described, rest] of [
    ["patternProperties", "additionalProperties"],
    ["prefixItems", "items"],
  ] as const) {
    const isOpen = part[rest] === undefined || part[rest] === true;
    if (isOpen || other[described] === undefined || isDeepStrictEqual(part[described], other[described])) continue;
    const problem = `a part with ${rest} beside a part with other ${described}`;
    refuseStructuredOutput(`${path} has ${problem}, which is not supported; leave ${rest} out`);
  }
}

function mergeValues(keyword: string, left: unknown, right: unknown, path: string): unknown {
  if (describingKeywords.has(keyword) || keywordsWithNames.has(keyword) || isDeepStrictEqual(left, right)) return left;
  if (typeof left === "number" && typeof right === "number") {
    if (lowerBounds.has(keyword)) return Math.max(left, right);
    if (upperBounds.has(keyword)) return Math.min(left, right);
    const multiple = keyword === "multipleOf" && left > 0 && right > 0 ? leastCommonMultiple(left, right) : null;
    if (multiple !== null) return multiple;
  }
  if (keyword === "type") return commonTypes(left, right, path);
  if (keyword === "items" && isObject(left) && isObject(right)) return { allOf: [left, right] };
  return refuseStructuredOutput(`${path} has parts with different values of ${keyword}, which is not supported`);
}

function commonTypes(left: unknown, right: unknown, path: string): unknown {
  const common = typesInBoth(left, right);
  if (common.length === 0) refuseStructuredOutput(`${path} has parts that no type satisfies together`);
  return common;
}

function typesInBoth(left: unknown, right: unknown): readonly unknown[] {
  const [ofLeft, ofRight] = [left, right].map((types) => (Array.isArray(types) ? (types as unknown[]) : [types]));
  const isIn = (types: readonly unknown[], type: unknown): boolean =>
    types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...ofLeft!, ...ofRight!].filter((type) => isIn(ofLeft!, type) && isIn(ofRight!, type)))];
}

/** Whether the schema's own `type` allows one of these; the types of references are not looked at. */
function mayHaveTypes(schema: unknown, types: unknown): boolean {
  if (types === undefined || !isObject(schema) || schema.type === undefined) return true;
  return typesInBoth(schema.type, types).length > 0;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
