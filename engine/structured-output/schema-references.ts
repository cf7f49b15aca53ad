/** Finds the places in a JSON Schema that references name. */
import { refuseStructuredOutput } from "./refusal.ts";

/** Throws EngineError `invalid_argument` if there is no such place. */
export function schemaAt(root: unknown, reference: string, path: string): unknown {
  let schema = root;
  for (const token of reference.split("/").slice(1)) {
    const within: unknown = schema;
    const names = namesOf(token);
    const found = names.find((name) => typeof within === "object" && within !== null && Object.hasOwn(within, name));
    if (found === undefined) {
      return refuseStructuredOutput(`${path}.$ref: Cannot find field ${names[0]} of ${reference}`);
    }
    schema = (within as Readonly<Record<string, unknown>>)[found];
  }
  return schema;
}

/**
 * The names that a part of a reference may mean. References are URLs, whose special characters are encoded (`%3C`), but
 * some generators of schemas leave them as they are.
 */
function namesOf(token: string): string[] {
  const names = [token];
  try {
    names.push(decodeURIComponent(token));
  } catch {
    // A percent sign that is not part of an encoded character.
  }
  return names.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
}
