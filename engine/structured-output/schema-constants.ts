/** Decides which constants the other keywords of a schema allow, in time proportional to their size. */
import { hasFormat } from "./json-format.ts";
import { isMultiple } from "./multiples.ts";

type JsonObject = Readonly<Record<string, unknown>>;

type IsAllowed = (value: unknown) => boolean;

const atLeast = (left: number, right: number): boolean => left >= right;
const atMost = (left: number, right: number): boolean => left <= right;
const charactersOf = (value: unknown): number | null => (typeof value === "string" ? Array.from(value).length : null);
const itemsOf = (value: unknown): number | null => (Array.isArray(value) ? value.length : null);
const propertiesOf = (value: unknown): number | null => (isObject(value) ? Object.keys(value).length : null);
const numberOf = (value: unknown): number | null => (typeof value === "number" ? value : null);

/** For a keyword about one type, whose values have such a number. */
function comparing(
  toNumber: (value: unknown) => number | null,
  isWithin: (left: number, right: number) => boolean,
): (operand: unknown) => IsAllowed {
  return (bound) => (value) => {
    const number = toNumber(value);
    return number === null || typeof bound !== "number" || isWithin(number, bound);
  };
}

const readers: Readonly<Record<string, (operand: unknown) => IsAllowed>> = {
  type: (type) => (value) => (Array.isArray(type) ? type : [type]).some((name) => hasType(value, name)),
  const: (constant) => includedIn([constant]),
  enum: (values) => (Array.isArray(values) ? includedIn(values) : () => true),
  not: (excluded) => {
    const isExcluded = allowedBy(excluded as JsonObject);
    return (value) => !isExcluded(value);
  },
  minimum: comparing(numberOf, atLeast),
  maximum: comparing(numberOf, atMost),
  exclusiveMinimum: comparing(numberOf, (value, bound) => value > bound),
  exclusiveMaximum: comparing(numberOf, (value, bound) => value < bound),
  multipleOf: comparing(numberOf, (value, step) => step > 0 && isMultiple(value, step)),
  minLength: comparing(charactersOf, atLeast),
  maxLength: comparing(charactersOf, atMost),
  minItems: comparing(itemsOf, atLeast),
  maxItems: comparing(itemsOf, atMost),
  uniqueItems: (isUnique) => (value) =>
    isUnique !== true || !Array.isArray(value) || new Set(value.map(keyOf)).size === value.length,
  minProperties: comparing(propertiesOf, atLeast),
  maxProperties: comparing(propertiesOf, atMost),
  required: (names) => (value) =>
    !isObject(value) || !Array.isArray(names) || names.every((name) => Object.hasOwn(value, String(name))),
  format: (format) => (value) => typeof value !== "string" || typeof format !== "string" || hasFormat(value, format),
};

/** Keywords that `allowedBy` knows. */
export const decidableKeywords: ReadonlySet<string> = new Set(Object.keys(readers));

/** Keywords that are not in `decidableKeywords` are ignored. */
export function allowedBy(schema: JsonObject): IsAllowed {
  const checks = Object.entries(schema).flatMap(([keyword, operand]) => readers[keyword]?.(operand) ?? []);
  return (value) => checks.every((isAllowed) => isAllowed(value));
}

/** Compares as JSON Schema does: members may have any order. */
export function includedIn(values: readonly unknown[]): IsAllowed {
  const keys = new Set(values.map(keyOf));
  return (value) => keys.has(keyOf(value));
}

/** Equal for equal values. */
export function keyOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(keyOf).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${keyOf(value[name])}`);
  return `{${members.join()}}`;
}

/** An integer is a number too. */
export function hasType(value: unknown, type: unknown): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  return typeof value === type;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
