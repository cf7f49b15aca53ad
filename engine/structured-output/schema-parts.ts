/** Merges parts of a schema, which a value must match together, keyword by keyword. */
import { isDeepStrictEqual } from "node:util";

import { leastCommonMultiple } from "./multiples.ts";
import { isEmptyRange } from "./number-range.ts";
import { patternOfBoth } from "./pattern-conditions.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import type { Choice } from "./schema-conditions.ts";
import { includedIn } from "./schema-constants.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/** Maximum number of characters of merged patterns: each takes an automaton of its own. */
const MAX_MERGED_CHARACTERS = 500;

const lowerBounds = new Set(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"]);
const upperBounds = new Set(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"]);
/** A value of one type: all of its items, other properties or names match it. */
const schemaKeywords = new Set(["items", "additionalProperties", "propertyNames"]);
const alternatives = ["anyOf", "oneOf"] as const;

/** No value matches a schema, which may be an alternative to others. The message is a sentence without its full stop. */
export class NoValue extends Error {}

/** Adds choices between alternatives that cannot be merged. */
export function mergeAll(
  parts: readonly JsonObject[],
  choices: Choice[],
  path: string,
  isRestricting: (keyword: string) => boolean,
): JsonObject {
  const merged = new Map<string, unknown>();
  const properties = new Map<string, unknown>();
  const required = new Set<unknown>();
  for (const part of parts) {
    for (const [keyword, value] of Object.entries(part)) {
      if (value === undefined) continue;
      if (keyword === "properties" && isObject(value)) addProperties(properties, value);
      else if (keyword === "required" && Array.isArray(value)) for (const name of value) required.add(name);
      else if (!merged.has(keyword)) merged.set(keyword, value);
      else if (!isRestricting(keyword)) continue;
      else if (isChoice(keyword, merged.get(keyword), value)) choices.push(value as Choice);
      else merged.set(keyword, mergeValues(keyword, merged.get(keyword), value, path));
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

const countsByType: Readonly<Record<string, readonly [least: string, most: string]>> = {
  string: ["minLength", "maxLength"],
  array: ["minItems", "maxItems"],
  object: ["minProperties", "maxProperties"],
};

/** Without types whose bounds, from different parts, exclude every value. */
export function withPossibleTypes(schema: JsonObject, path: string): JsonObject {
  const types = Array.isArray(schema.type) ? (schema.type as unknown[]) : [schema.type];
  const isPossible = (type: unknown): boolean => {
    if (type === "integer" || type === "number") return !isEmptyRange(schema, type);
    const [least, most] = countsByType[String(type)]?.map((keyword) => schema[keyword]) ?? [];
    return typeof least !== "number" || typeof most !== "number" || least <= most;
  };
  const possible = types.filter(isPossible);
  if (possible.length === 0) throw new NoValue(`${path} has parts whose bounds exclude each other`);
  return possible.length === types.length ? schema : { ...schema, type: possible };
}

/** Of two different lists of alternatives. */
function isChoice(keyword: string, left: unknown, right: unknown): boolean {
  const isAlternatives = alternatives.some((name) => name === keyword) && Array.isArray(right);
  return isAlternatives && !isDeepStrictEqual(left, right);
}

function addProperties(properties: Map<string, unknown>, further: JsonObject): void {
  for (const [name, schema] of Object.entries(further)) {
    const other = properties.get(name);
    const isOne = other === undefined || isDeepStrictEqual(other, schema);
    const isForbidden = other === false || schema === false;
    properties.set(name, isForbidden ? false : isOne ? schema : { allOf: [other, schema] });
  }
}

/** `additionalProperties` of a part is about all properties that the part itself does not list. */
function requireSameNames(part: JsonObject, all: ReadonlyMap<string, unknown>, path: string): void {
  const { additionalProperties, properties, patternProperties } = part;
  const isOpen = additionalProperties === undefined || additionalProperties === true;
  if (isOpen && patternProperties === undefined) return;
  const listed = isObject(properties) ? properties : {};
  for (const [name, schema] of all) {
    if (Object.hasOwn(listed, name) || schema === false) continue;
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
  if (isDeepStrictEqual(left, right)) return left;
  if (typeof left === "number" && typeof right === "number") {
    if (lowerBounds.has(keyword)) return Math.max(left, right);
    if (upperBounds.has(keyword)) return Math.min(left, right);
    const multiple = keyword === "multipleOf" && left > 0 && right > 0 ? leastCommonMultiple(left, right) : null;
    if (multiple !== null) return multiple;
  }
  if (keyword === "type") return commonTypes(left, right, path);
  if (keyword === "const") throw new NoValue(`${path} has parts with different constants`);
  if (keyword === "enum" && Array.isArray(left) && Array.isArray(right)) {
    const common = (left as unknown[]).filter(includedIn(right));
    if (common.length === 0) throw new NoValue(`${path} has parts without a common constant`);
    return common;
  }
  if (keyword === "not") return { enum: [...excludedConstants(left), ...excludedConstants(right)] };
  if (schemaKeywords.has(keyword)) return left === false || right === false ? false : { allOf: [left, right] };
  if (keyword === "pattern" && typeof left === "string" && typeof right === "string") {
    const both = patternOfBoth(left, right);
    if (both.length <= MAX_MERGED_CHARACTERS) return both;
    refuseStructuredOutput(`${path} has parts whose patterns are too long together; leave one of them out`);
  }
  return refuseStructuredOutput(`${path} has parts with different values of ${keyword}, which is not supported`);
}

/** Of a `not` that only excludes constants. */
export function excludedConstants(not: unknown): readonly unknown[] {
  return isObject(not) && Array.isArray(not.enum) ? not.enum : [];
}

function commonTypes(left: unknown, right: unknown, path: string): unknown {
  const [ofLeft, ofRight] = [left, right].map((types) => (Array.isArray(types) ? (types as unknown[]) : [types]));
  const isIn = (types: readonly unknown[], type: unknown): boolean =>
    types.includes(type) || (type === "integer" && types.includes("number"));
  const common = [...ofLeft!, ...ofRight!].filter((type) => isIn(ofLeft!, type) && isIn(ofRight!, type));
  if (common.length === 0) throw new NoValue(`${path} has parts that no type satisfies together`);
  return [...new Set(common)];
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
