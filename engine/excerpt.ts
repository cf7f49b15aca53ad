/** Shortens foreign values and messages, so that they fit into an error. */

/** For a value in a checkpoint's file, as JSON: a file may contain values of any size. */
const MAX_JSON_CHARACTERS = 80;
const MAX_MESSAGE_CHARACTERS = 200;
const MAX_TEXT_CHARACTERS = 40;

/** The value as JSON, shortened if necessary. The time is that of the whole value: for files, not for requests. */
export function excerpt(value: unknown): string {
  // JSON has no NaN and no infinities.
  const text = typeof value === "number" ? String(value) : (tryStringify(value) ?? "nested too deeply");
  return text.length <= MAX_JSON_CHARACTERS ? text : `${text.slice(0, MAX_JSON_CHARACTERS)}...`;
}

/** Null for a value that is nested more deeply than the stack allows; JSON.parse accepts such values. */
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
  if (value instanceof Map) return "a Map";
  if (value instanceof Set) return "a Set";
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "function")
    return `the ${/^class\b/.test(String(value)) ? "class" : "function"} ${value.name}`.trim();
  if (typeof value !== "string") return String(value).slice(0, MAX_TEXT_CHARACTERS);
  const text = JSON.stringify(value.slice(0, MAX_TEXT_CHARACTERS));
  return value.length > MAX_TEXT_CHARACTERS ? `${text.slice(0, -1)}…"` : text;
}

/** The message of a parser's error, on one line. */
export function describeError(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.replaceAll(/\s+/g, " ").slice(0, MAX_MESSAGE_CHARACTERS);
}
