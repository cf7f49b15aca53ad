/** Checks answers against the published schemas in test/fixtures/wire-schemas. */
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect } from "vitest";

interface Recorded {
  readonly $defs: Readonly<Record<string, unknown>>;
}

/**
 * Returns a check that a value has exactly the published shape of a definition. Fields that no definition names fail too,
 * which the schemas themselves would allow.
 */
export function wireSchemas(
  file: "openai-responses.json" | "anthropic-messages.json",
): (definition: string, value: unknown) => void {
  const url = new URL(`../fixtures/wire-schemas/${file}`, import.meta.url);
  const { $defs } = JSON.parse(readFileSync(url, "utf8")) as Recorded;
  const ajv = new Ajv2020({ strict: false, allErrors: false });
  ajv.addSchema({ $id: file, $defs: closed($defs) });
  return (definition, value) => {
    const validate = ajv.getSchema(`${file}#/$defs/${definition}`);
    if (validate === undefined) throw new Error(`${file} has no ${definition}.`);
    const isValid = validate(value);
    expect(isValid ? null : { problems: validate.errors, value }).toBeNull();
  };
}

/** Objects with named fields reject all others. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const members = Object.fromEntries(Object.entries(schema).map(([key, member]) => [key, closed(member)]));
  const isObject = "properties" in schema && !("additionalProperties" in schema);
  return isObject ? { ...members, additionalProperties: false } : members;
}
