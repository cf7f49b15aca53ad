/** Describes an error in a JSON file in one sentence with the path of the field, its value and the expected value. */
import type { z } from "zod";

/** In characters, for a value in a message: a file may contain values of any size. */
const maxExcerptLength = 80;

/** The value as JSON, shortened if necessary. */
export function excerpt(value: unknown): string {
  const text = tryStringify(value) ?? "nested too deeply";
  return text.length <= maxExcerptLength ? text : `${text.slice(0, maxExcerptLength)}...`;
}

/** Null for a value that is nested more deeply than the stack allows; JSON.parse accepts such values. */
function tryStringify(value: unknown): string | null {
  try {
    return JSON.stringify(value) ?? "nothing";
  } catch {
    return null;
  }
}

/** The message of a parser's error, on one line. */
export function describeError(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.replaceAll(/\s+/g, " ").slice(0, 200);
}

/**
 * Describes the first issue, without a full stop: "text_config.vocab_size is 1.5: expected an integer". The whole file
 * is called "it".
 *
 * @param path Path of the checked value in its file; "" for the whole file.
 * @param value The checked value.
 */
export function describeIssue(error: z.ZodError, path: string, value: unknown): string {
  const [issue] = error.issues;
  const field = [...(path === "" ? [] : [path]), ...issue.path.map(String)].join(".") || "it";
  const found = valueAt(value, issue.path);
  return `${field} is ${found === undefined ? "missing" : excerpt(found)}: ${expectationOf(issue)}`;
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let found = value;
  for (const key of path) {
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Readonly<Record<PropertyKey, unknown>>)[key];
  }
  return found;
}

type Issue = z.core.$ZodIssue;

function expectationOf(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return `expected ${withArticle(issue.expected)}`;
    case "too_small":
      return `expected ${issue.inclusive === false ? "more than" : "at least"} ${issue.minimum}${unitOf(issue.origin, issue.minimum)}`;
    case "too_big":
      return `expected ${issue.inclusive === false ? "less than" : "at most"} ${issue.maximum}${unitOf(issue.origin, issue.maximum)}`;
    case "invalid_value":
      return `expected ${issue.values.map((value) => excerpt(value)).join(" or ")}`;
    case "custom":
    case "invalid_element":
    case "invalid_format":
    case "invalid_key":
    case "invalid_union":
    case "not_multiple_of":
    case "unrecognized_keys":
      return issue.message.replace(/^Invalid input(: )?/, "") || "expected another value";
  }
}

function unitOf(origin: string, count: number | bigint): string {
  if (origin === "array") return count === 1 ? " entry" : " entries";
  return origin === "string" ? " characters" : "";
}

function withArticle(kind: string): string {
  if (kind === "int") return "an integer";
  return /^[aeiou]/.test(kind) ? `an ${kind}` : `a ${kind}`;
}
