/** Which completion a body asks for, where a route or a queue takes both. */

/**
 * `chat` for a body with `messages`, `text` for one with only a `prompt`, null for one with neither. As everywhere, a
 * field that is null is left out.
 */
export function completionFormOf(body: object): "chat" | "text" | null {
  const isGiven = (field: string): boolean => (Reflect.get(body, field) ?? null) !== null;
  if (isGiven("messages")) return "chat";
  return isGiven("prompt") ? "text" : null;
}
