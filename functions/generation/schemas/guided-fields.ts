/** Names that `structured_outputs` had in vLLM until 0.11. Clients pinned to it, such as olmOCR, send them. */
import { HttpError } from "../../http/errors.ts";

const guidedFields = {
  guided_json: "json",
  guided_regex: "regex",
  guided_choice: "choice",
  guided_grammar: "grammar",
} as const;

/**
 * The body with `structured_outputs` in place of such fields.
 *
 * @throws HttpError 400 for a body that has both.
 */
export function withStructuredOutputs(body: object): object {
  const given = Object.entries(guidedFields).filter(([field]) => valueOf(body, field) !== null);
  const [first] = given;
  if (first === undefined) return body;
  if (valueOf(body, "structured_outputs") !== null) {
    const [field] = first;
    const message = `${field} cannot be combined with structured_outputs, which is its newer name.`;
    throw new HttpError(400, "invalid_value", message, { parameter: field });
  }
  const outputs = Object.fromEntries(given.map(([field, name]) => [name, valueOf(body, field)]));
  return { ...body, structured_outputs: outputs };
}

function valueOf(body: object, field: string): unknown {
  return Object.hasOwn(body, field) ? (body[field as keyof typeof body] ?? null) : null;
}
