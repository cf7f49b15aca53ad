/** The response headers by which an image can later be recognised as unchanged, byte by byte. */
import type { IncomingHttpHeaders } from "node:http";

interface HttpValidator {
  /** Only this URL is asked again: another host may give the same validator to other bytes. */
  readonly url: string;
  readonly header: "if-none-match" | "if-modified-since";
  readonly value: string;
}

/**
 * A file that changes twice within the resolution of its date keeps that date. Only dates at least this old when sent
 * are reliable.
 */
const MIN_AGE_OF_DATE_MS = 60_000;

/**
 * The strong ETag, otherwise the modification date if RFC 9110 (8.8.2.2) lets it count as a strong validator: at least
 * a minute before the response's own date. Null if there is neither.
 */
export function validatorOf(headers: IncomingHttpHeaders, url: URL): string | null {
  const { etag, date = "", "last-modified": lastModified = "" } = headers;
  if (etag !== undefined && /^"[\x21\x23-\x7e]*"$/.test(etag)) {
    return serialise({ url: url.href, header: "if-none-match", value: etag });
  }
  const age = Date.parse(date) - Date.parse(lastModified);
  return age >= MIN_AGE_OF_DATE_MS
    ? serialise({ url: url.href, header: "if-modified-since", value: lastModified })
    : null;
}

/** Headers of a conditional request; null if the validator is invalid or belongs to another address. */
export function conditionalHeaders(validator: string | null, url: URL): Record<string, string> | null {
  if (validator === null) return null;
  const { url: givenBy, header, value } = JSON.parse(validator) as HttpValidator;
  return givenBy === url.href ? { [header]: value } : null;
}

function serialise(validator: HttpValidator): string {
  return JSON.stringify(validator);
}
