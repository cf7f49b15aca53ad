/** Runs a wire schema and turns its first issue into a 400 that names the field. */
import type { z } from "zod";

import { HttpError } from "../../http/errors.ts";
import { formatPath } from "../../http/wire-parameter.ts";

/** Throws HttpError 400 with the path of the field in `parameter`. */
export function parseFields<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const { path, message } = mostSpecific(result.error.issues[0]);
  const parameter = formatPath(path);
  throw new HttpError(400, "invalid_value", `${parameter || "The body"} ${message}.`, { parameter });
}

interface Located {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Of the alternatives of a union, the one that got furthest says what is wrong. */
function mostSpecific(issue: z.core.$ZodIssue): Located {
  const located = { path: issue.path, message: issue.message.replace(/^Invalid input: expected/, "must be") };
  if (issue.code !== "invalid_union") return located;
  const inner = issue.errors
    .flatMap((issues) => issues.slice(0, 1))
    .map(mostSpecific)
    .sort((first, second) => second.path.length - first.path.length)[0];
  if (inner === undefined || inner.path.length === 0) return located;
  return { path: [...issue.path, ...inner.path], message: inner.message };
}
