/** Parses JSON by a schema and describes the first problem in plain words. */
import type { z } from "zod";

import { shown } from "./excerpt.ts";

export interface SchemaProblem {
  /** Path of the invalid field: `image_std[0]`; empty for the whole value. */
  readonly path: string;
  /** Follows the name of the field: `is "64"; expected an integer`. */
  readonly problem: string;
}

export type ReadResult<Output> =
  | { readonly isValid: true; readonly value: Output }
  | ({ readonly isValid: false } & SchemaProblem);

/** Returns the first of several problems. The schema's own error message follows the word "expected". */
export function readBySchema<Schema extends z.ZodType>(schema: Schema, json: unknown): ReadResult<z.output<Schema>> {
  const result = schema.safeParse(json, { error: expectation });
  if (result.success) return { isValid: true, value: result.data };
  const { path, message } = furthest(result.error.issues[0]!);
  return { isValid: false, path: formatPath(path), problem: `${stateOf(json, path)}; expected ${message}` };
}

/**
 * A problem as a sentence without its full stop: `text_config.vocab_size is 1.5; expected an integer`. The whole value
 * is "it".
 *
 * @param parent Path of the value that was read; "" for a whole file.
 */
export function describeProblem({ path, problem }: SchemaProblem, parent = ""): string {
  const separator = parent === "" || path === "" || path.startsWith("[") ? "" : ".";
  return `${`${parent}${separator}${path}` || "it"} ${problem}`;
}

interface Located {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Of a union's alternatives, uses the issue of the one that matched furthest. */
function furthest(issue: z.core.$ZodIssue): Located {
  if (issue.code !== "invalid_union") return issue;
  const [inner] = issue.errors
    .flatMap((issues) => issues.slice(0, 1))
    .map(furthest)
    .sort((first, second) => second.path.length - first.path.length);
  return inner === undefined || inner.path.length === 0
    ? issue
    : { path: [...issue.path, ...inner.path], message: inner.message };
}

const typeNames: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  int: "an integer",
  number: "a number",
  object: "an object",
  record: "an object",
  string: "a text",
  tuple: "a list",
};

/** Replaces zod's own messages, which assume that the reader knows zod. */
function expectation(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return typeNames[issue.expected] ?? issue.expected;
    case "invalid_value":
      return issue.values.map((value) => JSON.stringify(value)).join(" or ");
    case "too_small":
      return `${issue.inclusive ? "at least" : "more than"} ${issue.minimum}${unitOf(issue.origin, issue.minimum)}`;
    case "too_big":
      return `${issue.inclusive ? "at most" : "less than"} ${issue.maximum}${unitOf(issue.origin, issue.maximum)}`;
    case "unrecognized_keys":
      return `no field ${issue.keys.slice(0, 3).map(shown).join(", ")}`;
    case "custom":
    case "invalid_element":
    case "invalid_format":
    case "invalid_key":
    case "invalid_union":
    case "not_multiple_of":
      return "another value";
    default:
      return issue satisfies never;
  }
}

function unitOf(origin: string, count: number | bigint): string {
  if (origin === "array") return Number(count) === 1 ? " element" : " elements";
  return origin === "string" ? " characters" : "";
}

function stateOf(json: unknown, path: readonly PropertyKey[]): string {
  let value = json;
  for (const key of path) value = ownField(value, key);
  return value === undefined ? "is missing" : `is ${shown(value)}`;
}

function ownField(value: unknown, key: PropertyKey): unknown {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
  return (value as Readonly<Record<PropertyKey, unknown>>)[key];
}

/** `["size", "height"]` is `size.height`, `["image_std", 0]` is `image_std[0]`. */
function formatPath(path: readonly PropertyKey[]): string {
  let formatted = "";
  for (const key of path) {
    if (typeof key === "number") formatted += `[${key}]`;
    else formatted += formatted === "" ? String(key) : `.${String(key)}`;
  }
  return formatted;
}
