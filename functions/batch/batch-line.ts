/**
 * A line of a batch: OpenAI's Batch input line plus `extra_args`, vLLM's name for the arguments of logits processors.
 * https://platform.openai.com/docs/guides/batch
 */
import { z } from "zod";

import type { ExtraArguments } from "../../engine/index.ts";
import { extraArguments } from "../generation/schemas/extra-arguments.ts";
import { parseFields } from "../generation/schemas/parse-fields.ts";
import { HttpError } from "../http/errors.ts";
import { parseJson } from "../http/json-body.ts";
import type { NumberedLine } from "./numbered-lines.ts";

/** Maximum bytes of a line in addition to its body. */
export const LINE_ROOM_BYTES = 64 * 1024;
/** Ids are kept in memory while the batch runs. */
export const MAX_CUSTOM_ID_LENGTH = 1024;

export const batchUrls = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/responses",
  "/v1/embeddings",
  "/v1/rerank",
  "/v1/score",
] as const;
export type BatchUrl = (typeof batchUrls)[number];

const schema = z.object({
  custom_id: z
    .string("must be a string")
    .min(1, "must not be empty")
    .max(MAX_CUSTOM_ID_LENGTH, `must have at most ${MAX_CUSTOM_ID_LENGTH} characters`),
  method: z.literal("POST", "must be POST"),
  url: z.enum(batchUrls, `must be one of ${batchUrls.join(", ")}`),
  body: z.looseObject(
    {
      stream: z.literal(false, "must be false: lines of a batch are not streamed").nullish(),
      extra_args: z.undefined("is not a field of the body; move it next to the body, or use vllm_xargs").optional(),
    },
    "must be an object",
  ),
  extra_args: extraArguments.nullish(),
});

export interface BatchLine {
  readonly lineNumber: number;
  readonly customId: string;
  readonly url: BatchUrl;
  /** The body of a POST to `url`. */
  readonly body: object;
  /** `vllm_xargs` in the body overrides arguments of the same name. */
  readonly extraArguments: ExtraArguments;
}

/** A line that is not a valid request. */
export interface BadBatchLine {
  readonly lineNumber: number;
  /** Null if the line has none. */
  readonly customId: string | null;
  readonly code: "invalid_json" | "invalid_value" | "line_too_long" | "duplicate_custom_id";
  /** Starts with the number of the line. */
  readonly message: string;
  /** Path within the line: `body.stream`. */
  readonly parameter: string | null;
}

export type ParsedLine = ({ readonly kind: "good" } & BatchLine) | ({ readonly kind: "bad" } & BadBatchLine);

export function parseBatchLine({ lineNumber, text, problem }: NumberedLine): ParsedLine {
  const bad = (error: Pick<BadBatchLine, "code" | "message" | "parameter">, customId: string | null): ParsedLine => {
    return { kind: "bad", lineNumber, customId, ...error, message: `Line ${lineNumber}: ${error.message}` };
  };
  if (problem !== null) return bad({ ...problem, parameter: null }, null);
  let json: unknown = null;
  try {
    json = parseJson(text, "it");
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      return bad({ code: "invalid_value", message: "it must be a JSON object.", parameter: null }, null);
    }
    return { kind: "good", ...readBatchLine(json, lineNumber) };
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    const code = error.code === "invalid_json" ? "invalid_json" : "invalid_value";
    return bad({ code, message: error.message, parameter: error.parameter || null }, customIdOf(json));
  }
}

/** Throws HttpError 400 that names the field. */
export function readBatchLine(json: object, lineNumber: number): BatchLine {
  const { custom_id: customId, url, body, extra_args: given } = parseFields(schema, json);
  return { lineNumber, customId, url, body, extraArguments: given ?? {} };
}

/** The error for a line whose id another line has. */
export function duplicateOf({ lineNumber, customId }: BatchLine, firstLineNumber: number): BadBatchLine {
  return {
    lineNumber,
    customId,
    code: "duplicate_custom_id",
    message: `Line ${lineNumber}: custom_id is also that of line ${firstLineNumber}, ${JSON.stringify(customId)}.`,
    parameter: "custom_id",
  };
}

function customIdOf(json: unknown): string | null {
  if (typeof json !== "object" || json === null || !("custom_id" in json)) return null;
  const { custom_id: customId } = json;
  return typeof customId === "string" ? customId.slice(0, MAX_CUSTOM_ID_LENGTH) : null;
}
