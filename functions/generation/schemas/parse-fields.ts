/** Runs a wire schema and turns its first issue into a 400 that names the field. */
import type { z } from "zod";

import { HttpError } from "../../http/errors.ts";
import { formatPath } from "../../http/wire-parameter.ts";

/**
 * Lists and objects stop at their first invalid element: a million issues would take a minute and the whole heap. Zod's
 * own `validate` sets this option; `safeParse` also passes it on, although its type does not list it.
 */
const stopAtFirstIssue: z.core.ParseContextInternal<z.core.$ZodIssue> = { abortEarly: true };

/** Some messages quote names chosen by the client. */
const MAX_MESSAGE_LENGTH = 500;

/** Throws HttpError 400 with the path of the field in `parameter`, and zod's error as cause. */
export function parseFields<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const result = schema.safeParse(body, stopAtFirstIssue);
  if (result.success) return result.data;
  const { path, message } = mostSpecific(result.error.issues[0]!);
  const parameter = formatPath(path);
  const shown = message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message;
  throw new HttpError(400, "invalid_value", `${parameter || "The body"} ${shown}.`, {
    parameter,
    cause: result.error,
  });
}

interface Located {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Of a union's alternatives, uses the issue of the one that matched furthest. */
function mostSpecific(issue: z.core.$ZodIssue): Located {
  const located = { path: issue.path, message: issue.message.replace(/^Invalid input: expected/, "must be") };
  if (issue.code !== "invalid_union") return located;
  const alternatives = issue.errors.flatMap((issues) => issues.slice(0, 1));
  const deepest = alternatives.map(mostSpecific).sort((first, second) => second.path.length - first.path.length)[0];
  if (deepest !== undefined && deepest.path.length > 0) {
    return { path: [...issue.path, ...deepest.path], message: deepest.message };
  }
  // For example an alternative of the right type whose value is too long.
  const ofType = alternatives.find(({ code }) => code !== "invalid_type" && code !== "invalid_union");
  return ofType === undefined ? located : { path: issue.path, message: ofType.message };
}
