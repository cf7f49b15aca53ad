/** Wire fields that prescribe a form of the text: OpenAI's `response_format` and vLLM's `structured_outputs`. */
import { z } from "zod";

import { structuredOutputLimits } from "../../../engine/index.ts";
import type { StructuredOutput } from "../../../engine/index.ts";
import { addIssue, boundedJson, boundedList, boundedText, flag } from "./wire-types.ts";

/** The engine counts bytes, of which a text has at least as many as characters. */
const { sourceBytes, choices } = structuredOutputLimits;

const jsonObject = boundedJson(sourceBytes).pipe(z.record(z.string(), z.unknown(), "must be an object"));
/** `true` and `false` are schemas too. */
const jsonSchema = z.union([jsonObject, z.boolean()], "must be a JSON Schema: an object");
const source = boundedText(sourceBytes);

const responseFormat = z
  .discriminatedUnion(
    "type",
    [
      z.object({ type: z.literal("text") }),
      // The schema is a field of llama.cpp, Together and Fireworks, which instructor for Node sends. TGI calls it value;
      // huggingface_hub sends it so.
      z.object({ type: z.literal("json_object"), schema: jsonSchema.nullish(), value: jsonSchema.nullish() }),
      z.object({ type: z.literal("json"), value: jsonSchema }),
      z.object({ type: z.literal("regex"), value: source }),
      z.object({
        type: z.literal("json_schema"),
        json_schema: z.object({ schema: jsonSchema }, 'must be an object: {"name": …, "schema": …}'),
      }),
    ],
    "must be text, json_object or json_schema",
  )
  .transform((format): StructuredOutput | null => {
    switch (format.type) {
      case "text":
        return null;
      case "json_object":
        return ofSchema(format.schema ?? format.value ?? null);
      case "json":
        return ofSchema(format.value);
      case "regex":
        return { kind: "regex", pattern: format.value };
      case "json_schema":
        return ofSchema(format.json_schema.schema);
    }
  });

/** @param schema Null for any object. */
function ofSchema(schema: unknown): StructuredOutput {
  if (schema === null) return { kind: "json-object" };
  return { kind: "json-schema", schema: JSON.stringify(schema) };
}

const notServed = (value: unknown): boolean => value === null || value === undefined || value === false;
const unserved = z.unknown().refine(notServed, "is not supported; leave it out");

const constraintNames = ["json", "regex", "choice", "grammar", "json_object"] as const;

const structuredOutputs = z
  .strictObject(
    {
      json: z.union([jsonSchema, source], "must be a JSON Schema, as an object or as a string").nullish(),
      regex: source.nullish(),
      choice: boundedList(source, choices, "must be a list of strings").nullish(),
      grammar: source.nullish(),
      json_object: flag.refine((value) => value, "must be true or left out").nullish(),
      structural_tag: unserved.optional(),
      disable_any_whitespace: flag.nullish(),
      disable_additional_properties: unserved.optional(),
      whitespace_pattern: unserved.optional(),
    },
    `must be an object with one of ${constraintNames.join(", ")}`,
  )
  .transform((fields, context): StructuredOutput => {
    const given = constraintNames.filter((name) => fields[name] !== null && fields[name] !== undefined);
    if (given.length !== 1) {
      const found = given.length === 0 ? "none" : given.join(" and ");
      context.addIssue({
        code: "custom",
        message: `must have exactly one of ${constraintNames.join(", ")}; got ${found}`,
      });
      return z.NEVER;
    }
    if (fields.disable_any_whitespace === true && given[0] !== "json" && given[0] !== "json_object") {
      addIssue(context, "disable_any_whitespace", `is for json and json_object only; got ${given.join()}`);
      return z.NEVER;
    }
    if (typeof fields.regex === "string") return { kind: "regex", pattern: fields.regex };
    if (typeof fields.grammar === "string") return { kind: "grammar", grammar: fields.grammar };
    if (fields.choice) return { kind: "choice", choices: fields.choice };
    const form = fields.disable_any_whitespace === true ? { isCompact: true } : {};
    if (fields.json_object === true) return { kind: "json-object", ...form };
    return {
      kind: "json-schema",
      ...form,
      schema: typeof fields.json === "string" ? fields.json : JSON.stringify(fields.json),
    };
  });

export const structuredOutputFields = {
  response_format: responseFormat.nullish(),
  structured_outputs: structuredOutputs.nullish(),
};
