/** The JSON types that a schema allows, for formats whose values are raw text. */
import { parseBoundedJson } from "../../../http/bounded-json.ts";

/** Depth to which alternatives are followed. */
const MAX_DEPTH = 8;

/** Names of types; empty if the schema does not say. */
export function typesOf(schema: unknown, depth = 0): ReadonlySet<string> {
  const types = new Set<string>();
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH) return types;
  const { type, enum: values, const: value, anyOf, oneOf } = schema as Readonly<Record<string, unknown>>;
  for (const name of [type].flat()) if (typeof name === "string") types.add(name);
  if (types.size > 0) return types;
  const constants = [...(Array.isArray(values) ? values : []), ...(value === undefined ? [] : [value])];
  for (const constant of constants) types.add(typeNameOf(constant));
  for (const option of [anyOf, oneOf].flat()) for (const name of typesOf(option, depth + 1)) types.add(name);
  return types;
}

export function typeNameOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

const pythonLiterals: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["True", true],
  ["False", false],
  ["None", null],
]);

/** The value of JSON or of one of Python's literals; undefined for other text, and for JSON of too many levels. */
export function parseLoosely(text: string): unknown {
  if (pythonLiterals.has(text)) return pythonLiterals.get(text);
  const parsed = parseBoundedJson(text);
  return parsed.kind === "parsed" ? parsed.value : undefined;
}
