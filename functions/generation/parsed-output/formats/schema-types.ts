/** The JSON types that a schema allows, for formats whose values are raw text. */
import { parseBoundedJson } from "../../../http/bounded-json.ts";

/** Depth to which alternatives are followed. */
const MAX_DEPTH = 8;

/**
 * Names of types; empty if the schema does not say.
 *
 * @param root The schema that references point into.
 */
export function typesOf(schema: unknown, root: unknown, depth = 0): ReadonlySet<string> {
  const types = new Set<string>();
  if (!isObject(schema) || depth > MAX_DEPTH) return types;
  const { $ref, type, enum: values, const: value, anyOf, oneOf, allOf } = schema;
  if (typeof $ref === "string") return typesOf(schemaAt($ref, root), root, depth + 1);
  for (const name of [type].flat()) if (typeof name === "string") types.add(name);
  if (types.size > 0) return types;
  const constants = [...(Array.isArray(values) ? values : []), ...(value === undefined ? [] : [value])];
  for (const constant of constants) types.add(typeNameOf(constant));
  for (const option of [anyOf, oneOf, allOf].flat())
    for (const name of typesOf(option, root, depth + 1)) types.add(name);
  if (types.size === 0 && schema.properties !== undefined) types.add("object");
  if (types.size === 0 && schema.items !== undefined) types.add("array");
  return types;
}

/** Undefined for a reference to another document, and for one to nothing. */
function schemaAt(reference: string, root: unknown): unknown {
  const [start, ...names] = reference.split("/");
  if (start !== "#") return undefined;
  return names.reduce<unknown>((within, name) => {
    const key = name.replaceAll("~1", "/").replaceAll("~0", "~");
    return isObject(within) && Object.hasOwn(within, key) ? within[key] : undefined;
  }, root);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
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

/** Whether the text is one of Python's literals that JSON spells differently. */
export function isPythonWord(text: string): boolean {
  return pythonLiterals.has(text);
}

/** The value of JSON or of one of Python's literals; undefined for other text, and for JSON of too many levels. */
export function parseLoosely(text: string): unknown {
  if (pythonLiterals.has(text)) return pythonLiterals.get(text);
  const parsed = parseBoundedJson(text);
  return parsed.kind === "parsed" ? parsed.value : undefined;
}
