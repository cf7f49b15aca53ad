/**
 * The `encrypted_content` of thinking. Clients that let the server store nothing send thinking back only in this form.
 * It is encoded and not encrypted: the answer has the same text beside it.
 */
const prefix = "fovea:";

export function encodeThinking(text: string): string {
  return prefix + Buffer.from(text).toString("base64");
}

/** Null for the thinking of another service, which only that service can read. */
export function decodeThinking(encoded: string): string | null {
  return encoded.startsWith(prefix) ? Buffer.from(encoded.slice(prefix.length), "base64").toString() : null;
}
