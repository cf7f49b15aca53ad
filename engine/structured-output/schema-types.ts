/** The types of the values that a schema describes. */
import { lengthKeywords, listKeywords, nameKeywords, restKeywords, textKeywords } from "./json-schema.ts";
import type { JsonObject } from "./json-schema.ts";
import { rangeKeywords } from "./number-range.ts";
import { refuseStructuredOutput } from "./refusal.ts";

const allTypes = ["object", "array", "string", "number", "boolean", "null"];
const typeNames = new Set<unknown>([...allTypes, "integer"]);

/** Of types with few values. */
export const constantsByType: ReadonlyMap<string, readonly unknown[]> = new Map([
  ["boolean", [true, false]],
  ["null", [null]],
]);

const describingNameKeywords = [...nameKeywords, ...restKeywords].filter((keyword) => !/^(?:min|max)/.test(keyword));
const describingListKeywords = listKeywords.filter((keyword) => !/^(?:min|max)/.test(keyword));

/** Without `type`, the type that the other keywords describe. Bounds on counts alone do not restrict the type. */
export function typesOf(schema: JsonObject, path: string): readonly string[] {
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
