/** Entry of the thread that parses long bodies, so that they do not block the thread that serves. */
import { parseBodyBytes } from "./bounded-json.ts";
import type { ParsedJson } from "./bounded-json.ts";

export function parseBody(bytes: Uint8Array): ParsedJson {
  return parseBodyBytes(bytes);
}
