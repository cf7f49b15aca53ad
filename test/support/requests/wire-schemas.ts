/** Checks answers against the published schemas in test/fixtures/wire-schemas. */
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect } from "vitest";

interface Recorded {
  readonly $defs: Readonly<Record<string, unknown>>;
}

type Properties = Record<string, unknown>;

const tokenIds = { type: "array", items: { type: "integer" } };
const thinking = { reasoning: { type: "string" }, reasoning_content: { type: "string" } };
const choice = { stop_reason: { type: ["string", "integer", "null"] }, token_ids: tokenIds };
const answer = { prompt_token_ids: { anyOf: [tokenIds, { type: "null" }] }, prompt_logprobs: { type: "array" } };

/** OpenAI's service streams null until the last chunk. Its document has one schema for streamed and whole texts. */
const finishReason = { finish_reason: { enum: ["stop", "length", "content_filter", null] } };

/** vLLM's fields, which OpenAI's clients ignore, by the path of the object that has them. */
const additions: Readonly<Record<string, Properties>> = {
  "CreateChatCompletionResponse.properties": answer,
  "CreateChatCompletionResponse.properties.choices.items.properties": choice,
  "CreateChatCompletionStreamResponse.properties": answer,
  "CreateChatCompletionStreamResponse.properties.choices.items.properties": choice,
  "ChatCompletionResponseMessage.properties": thinking,
  "ChatCompletionStreamResponseDelta.properties": thinking,
  "CreateCompletionResponse.properties.choices.items.properties": { ...choice, ...answer, ...finishReason },
  "CompletionUsage.properties.prompt_tokens_details.properties": {
    multimodal_tokens: {
      type: "object",
      properties: { image: { type: "integer" }, video: { type: "integer" } },
      required: ["image"],
    },
    omitted_images: { type: "integer" },
  },
  "Model.properties": {
    root: { type: "string" },
    parent: { type: "null" },
    max_model_len: { type: ["integer", "null"] },
  },
};

/** Fields that the specification of Open Responses requires beside OpenAI's. */
const responsesAdditions: Readonly<Record<string, Properties>> = {
  "Response.properties": {
    store: { type: "boolean" },
    presence_penalty: { type: "number" },
    frequency_penalty: { type: "number" },
    temperature: { type: "number" },
    top_p: { type: "number" },
  },
};

/** A field that Anthropic's clients read, and its document leaves out. */
const anthropicAdditions: Readonly<Record<string, Properties>> = {
  "ErrorResponse.properties.error.properties": {
    details: { type: "object", properties: { error_code: { const: "thread_not_found" } }, required: ["error_code"] },
  },
};

const additionsOfFile = {
  "openai-responses.json": responsesAdditions,
  "openai-completions.json": {},
  "anthropic-messages.json": anthropicAdditions,
} as const;

/**
 * Returns a check that a value has exactly the published shape of a definition. Fields that no definition names fail too,
 * which the schemas themselves would allow.
 */
export function wireSchemas(file: keyof typeof additionsOfFile): (definition: string, value: unknown) => void {
  const url = new URL(`../../fixtures/wire-schemas/${file}`, import.meta.url);
  const { $defs } = JSON.parse(readFileSync(url, "utf8")) as Recorded;
  const all = { ...additions, ...additionsOfFile[file] };
  for (const [path, members] of Object.entries(all)) addMembers($defs, path, members);
  const ajv = new Ajv2020({ strict: false, allErrors: false });
  ajv.addSchema({ $id: file, $defs: closed($defs) });
  return (definition, value) => {
    const validate = ajv.getSchema(`${file}#/$defs/${definition}`);
    if (validate === undefined) throw new Error(`${file} has no ${definition}.`);
    const isValid = validate(value);
    expect(isValid ? null : { problems: validate.errors, value }).toBeNull();
  };
}

/** Does nothing if the file has no such definition. */
function addMembers($defs: Recorded["$defs"], path: string, members: Properties): void {
  const [definition, ...rest] = path.split(".");
  let schema = $defs[definition!] as Properties | undefined;
  if (schema === undefined) return;
  for (const key of rest) schema = schema[key] as Properties;
  Object.assign(schema, members);
}

/** Objects with named fields reject all others. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const members = Object.fromEntries(Object.entries(schema).map(([key, member]) => [key, closed(member)]));
  const isObject = "properties" in schema && !("additionalProperties" in schema);
  return isObject ? { ...members, additionalProperties: false } : members;
}
