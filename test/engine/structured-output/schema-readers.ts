/** Reads values by JSON Schemas, beside the verdicts of Ajv. */
import { Ajv2020 } from "ajv/dist/2020.js";

import { checkJsonSchema } from "../../../engine/structured-output/json-schema.ts";
import { Reader } from "./grammars.ts";

/** Throws EngineError like a request with this schema. */
export function readerOf(schema: object): Reader {
  const json = JSON.stringify(schema);
  checkJsonSchema(json);
  return new Reader({ kind: "json-schema", schema: json });
}

/** Whether the value is a whole text of the reader; null allows none. */
export function isWhole(reader: Reader | null, value: unknown): boolean {
  return reader?.judge(Buffer.from(JSON.stringify(value))) === "whole";
}

/** Each value with whether the schema allows it: as a text of the reader, and for Ajv. */
export function verdictsOf(schema: object, values: readonly unknown[]) {
  const reader = readerOf(schema);
  const isValid = new Ajv2020({ strict: false }).compile(schema);
  return {
    ours: values.map((value) => ({ value, isAllowed: isWhole(reader, value) })),
    ofAjv: values.map((value) => ({ value, isAllowed: isValid(value) })),
  };
}
