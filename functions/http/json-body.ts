/** Reads a request body as a JSON object, within limits. */
import type { BodyIntake } from "./body-intake.ts";
import { parseBoundedJson, parseJsonBytes } from "./bounded-json.ts";
import type { ParsedJson } from "./bounded-json.ts";
import { HttpError } from "./errors.ts";

export interface JsonBodyOptions {
  /**
   * Whether a body without a content type is JSON as well, for clients that send none. Default false, because browsers
   * let the pages of all origins send such a body.
   */
  readonly acceptsUntyped?: boolean;
}

/**
 * Throws HttpError 400 for another content type, for invalid JSON and for JSON that exceeds a structural limit,
 * HttpError 415 for another charset, and the errors of `BodyIntake.receiveJson`.
 */
export async function readJsonObject(
  request: Request,
  maxBodyBytes: number,
  bodies: BodyIntake,
  { acceptsUntyped = false }: JsonBodyOptions = {},
): Promise<object> {
  const contentType = request.headers.get("content-type");
  if (contentType !== null || !acceptsUntyped) checkContentType(contentType ?? "");
  return objectOf(await bodies.receiveJson(request, maxBodyBytes), "The body");
}

/**
 * The same for a body whose first `numJsonBytes` are JSON, with the bytes behind them. All content types are accepted:
 * the caller has that length from a header of its own, which browsers do not send for the pages of other origins.
 */
export async function readJsonObjectAndRest(
  request: Request,
  maxBodyBytes: number,
  bodies: BodyIntake,
  numJsonBytes: number,
): Promise<{ readonly body: object; readonly rest: Uint8Array }> {
  const { json, rest } = await bodies.receiveJsonAndRest(request, maxBodyBytes, numJsonBytes);
  return { body: objectOf(json, "The JSON of the body"), rest };
}

function objectOf(parsed: ParsedJson, subject: string): object {
  const body = valueOf(parsed, subject);
  if (typeof body === "object" && body !== null && !Array.isArray(body)) return body;
  throw new HttpError(400, "invalid_json", `${subject} must be a JSON object.`);
}

/**
 * Throws HttpError 400 that says where the text is not JSON, or which limit it exceeds; bytes must be UTF-8. `subject`
 * names the text.
 */
export function parseJson(text: string | Uint8Array, subject: string): unknown {
  return valueOf(typeof text === "string" ? parseBoundedJson(text) : parseJsonBytes(text), subject);
}

function valueOf(parsed: ParsedJson, subject: string): unknown {
  if (parsed.kind === "parsed") return parsed.value;
  const { code, problem, member } = parsed;
  const where = member === null ? "" : `, exceeded in ${member}`;
  throw new HttpError(400, code, `${subject} ${problem}${where}.`, member === null ? {} : { parameter: member });
}

/** JSON is UTF-8 (RFC 8259, section 8.1), which includes ASCII. */
const utf8Charsets = new Set(["utf-8", "utf8", "us-ascii"]);

function checkContentType(contentType: string): void {
  const mediaType = contentType.split(";", 1)[0]!.trim().toLowerCase();
  if (mediaType !== "application/json" && !mediaType.endsWith("+json")) {
    throw new HttpError(
      400,
      "unsupported_media_type",
      "Unsupported Media Type: only application/json is allowed in Content-Type.",
    );
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType)?.[1]?.toLowerCase();
  if (charset !== undefined && !utf8Charsets.has(charset)) {
    throw new HttpError(
      415,
      "unsupported_charset",
      `charset=${charset.slice(0, 40)} is not supported in Content-Type: send JSON in UTF-8.`,
    );
  }
}
