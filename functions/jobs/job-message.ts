/** Messages of a queue: the body of a request, a line of a batch, or the address of a file of such lines. */
import { z } from "zod";

import { MAX_CUSTOM_ID_LENGTH, readBatchLine } from "../batch/batch-line.ts";
import type { BatchLine } from "../batch/batch-line.ts";
import { completionFormOf } from "../generation/completion-form.ts";
import { parseFields } from "../generation/schemas/parse-fields.ts";
import { HttpError } from "../http/errors.ts";
import { parseJson } from "../http/json-body.ts";
import { readTraceContext } from "../telemetry/trace-context.ts";
import type { TraceContext } from "../telemetry/trace-context.ts";
import type { JobRefusal } from "./job-result.ts";
import { describeTarget, readObject } from "./targets.ts";
import type { S3Location } from "./targets.ts";

/** Where a message wants its result, beside the places that the settings name. */
export interface JobTargets {
  /** URL of a webhook; null without one. */
  readonly webhook: string | null;
}

export interface LineJob {
  readonly kind: "line";
  /** The trace of the sender, if the message names it. */
  readonly traceContext: TraceContext | null;
  readonly line: BatchLine;
  readonly targets: JobTargets;
}

/** All lines of a file. */
export interface FileJob {
  readonly kind: "file";
  readonly customId: string | null;
  readonly input: S3Location;
  /** The file of the results. */
  readonly output: S3Location;
  readonly targets: JobTargets;
}

export type Job = LineJob | FileJob;

export type ParsedMessage =
  | { readonly kind: "good"; readonly job: Job }
  | { readonly kind: "bad"; readonly customId: string | null; readonly refusal: JobRefusal };

const webhook = z.string("must be a string").max(2048, "must have at most 2048 characters").nullish();
const s3Object = z.string("must be a string").transform((text, context): S3Location => {
  const object = readObject(text);
  if (object !== null) return object;
  context.addIssue({ code: "custom", message: "must be s3://bucket/key of a file" });
  return z.NEVER;
});
const fileSchema = z.strictObject(
  {
    custom_id: z.string("must be a string").min(1, "must not be empty").max(MAX_CUSTOM_ID_LENGTH).nullish(),
    input: s3Object,
    output: s3Object,
    webhook,
  },
  {
    error: (issue) =>
      issue.code === "unrecognized_keys" ? `has an unknown field: ${issue.keys.join(", ")}` : undefined,
  },
);
const targetsSchema = z.looseObject({ webhook });

/** A message that is a bare request body has neither of these fields. */
const lineFields = ["body", "url", "method", "custom_id"] as const;

export interface MessageOptions {
  /** Whether the queue carries chunks of answers, so that a body may have `stream: true`. Default: false. */
  readonly canStream?: boolean;
}

/**
 * Reads a message. `{"messages": ...}` and `{"prompt": ...}` are bodies of requests, `{"url": ..., "body": ...}` is a
 * line of a batch, and `{"input": "s3://...", "output": "s3://..."}` a file of lines. A line without `custom_id` gets
 * the id of the job, and one without `url` the URL that its body fits.
 */
export function parseMessage(jobId: string, body: string | Uint8Array, options: MessageOptions = {}): ParsedMessage {
  let customId: string | null = null;
  try {
    // As in bodies of requests, a byte order mark is dropped.
    const json = parseJson(typeof body === "string" ? body.replace(/^\ufeff/, "") : body, "The message");
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      throw new HttpError(400, "invalid_json", "The message must be a JSON object.");
    }
    const message = json as Readonly<Record<string, unknown>>;
    if (typeof message.custom_id === "string") customId = message.custom_id.slice(0, MAX_CUSTOM_ID_LENGTH);
    if ("input" in message && !("body" in message)) {
      if (!("output" in message)) throw noFile();
      return { kind: "good", job: readFileJob(message) };
    }
    return { kind: "good", job: readLineJob(jobId, message, options) };
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    const refusal = { code: error.code, message: error.message, parameter: error.parameter || null };
    return { kind: "bad", customId, refusal };
  }
}

function noFile(): HttpError {
  const message =
    'The message has input without output. Send a file as {"input": "s3://bucket/key", "output": "s3://bucket/key"}, and the body of a response as {"url": "/v1/responses", "body": {...}}.';
  return new HttpError(400, "invalid_value", message, { parameter: "input" });
}

function readFileJob(message: object): FileJob {
  const { custom_id: customId, input, output, webhook: url } = parseFields(fileSchema, message);
  const place = describeTarget(input);
  if (place === describeTarget(output)) {
    throw new HttpError(400, "invalid_value", `output is the same object as input, ${place}.`, { parameter: "output" });
  }
  return { kind: "file", customId: customId ?? null, input, output, targets: { webhook: url ?? null } };
}

function readLineJob(
  jobId: string,
  message: Readonly<Record<string, unknown>>,
  { canStream = false }: MessageOptions,
): LineJob {
  const isLine = lineFields.some((field) => field in message);
  const { webhook: url } = parseFields(targetsSchema, message);
  const { webhook: _, traceparent, tracestate, ...rest } = message;
  const traceContext = readTraceContext((name) => (name === "traceparent" ? traceparent : tracestate));
  const given = isLine ? rest : { body: rest };
  const defaults = { custom_id: jobId.slice(0, MAX_CUSTOM_ID_LENGTH), method: "POST", url: urlFor(given.body) };
  const fields: Readonly<Record<string, unknown>> = { ...defaults, ...withoutNulls(given) };
  const targets = { webhook: url ?? null };
  if (!canStream || !isStreamed(fields.body)) {
    return { kind: "line", line: readBatchLine(fields, 1), targets, traceContext };
  }
  // Lines of batches are never streamed.
  const line = readBatchLine({ ...fields, body: { ...fields.body, stream: false } }, 1);
  return { kind: "line", line: { ...line, body: { ...line.body, stream: true } }, targets, traceContext };
}

function isStreamed(body: unknown): body is { readonly stream: true } {
  return typeof body === "object" && body !== null && "stream" in body && body.stream === true;
}

function urlFor(body: unknown): string {
  const isText = typeof body === "object" && body !== null && completionFormOf(body) === "text";
  return isText ? "/v1/completions" : "/v1/chat/completions";
}

function withoutNulls(fields: Readonly<Record<string, unknown>>): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}
