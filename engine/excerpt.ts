/** Values and messages of other people, cut to what fits into an error. */

/** Of a value of a checkpoint's file as JSON. */
const MAX_JSON_CHARACTERS = 80;
const MAX_MESSAGE_CHARACTERS = 200;
const MAX_TEXT_CHARACTERS = 40;

/** A value as JSON, or its beginning. Takes the time of the whole value: for files, not for requests. */
export function excerpt(value: unknown): string {
  const text = tryStringify(value) ?? "nested too deeply";
  return text.length <= MAX_JSON_CHARACTERS ? text : `${text.slice(0, MAX_JSON_CHARACTERS)}...`;
}

/** Null for a value that is nested more deeply than the stack allows, which JSON.parse takes. */
function tryStringify(value: unknown): string | null {
  try {
    return JSON.stringify(value) ?? "nothing";
  } catch {
    return null;
  }
}

/** A value in a few words, in constant time whatever its size and depth. */
export function shown(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length} ${value.length === 1 ? "element" : "elements"}`;
  if (typeof value === "number") return String(value);
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value !== "string") return String(value).slice(0, MAX_TEXT_CHARACTERS);
  const text = JSON.stringify(value.slice(0, MAX_TEXT_CHARACTERS));
  return value.length > MAX_TEXT_CHARACTERS ? `${text.slice(0, -1)}…"` : text;
}

/** The message of an error that a parser threw, on one line. */
export function describeError(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.replaceAll(/\s+/g, " ").slice(0, MAX_MESSAGE_CHARACTERS);
}
