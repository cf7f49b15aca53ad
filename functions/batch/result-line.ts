/** A line of a batch's results: OpenAI's Batch output line. */

import { randomUuid } from "../../engine/index.ts";
import type { BadBatchLine, BatchLine } from "./batch-line.ts";

export interface ResultLine {
  readonly id: string;
  /** The id of the input line; null if it had none. */
  readonly custom_id: string | null;
  /** The answer of a POST to the line's URL, also for errors; null for an invalid line. */
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: object;
  } | null;
  readonly error: {
    readonly code: BadBatchLine["code"] | "batch_expired";
    readonly message: string;
    /** From 1. */
    readonly line: number;
    readonly param: string | null;
  } | null;
}

/** Every line of a results file starts with it. */
export const resultLinePrefix = '{"id":"batch_req_';

export interface LineResponse {
  readonly statusCode: number;
  readonly requestId: string;
  readonly body: object;
}

export function isSuccess({ response }: ResultLine): boolean {
  return response?.status_code === 200;
}

export function responseLine(customId: string, { statusCode, requestId, body }: LineResponse): ResultLine {
  return {
    id: createId(),
    custom_id: customId,
    response: { status_code: statusCode, request_id: requestId, body },
    error: null,
  };
}

export function errorLine({ lineNumber, customId, code, message, parameter }: BadBatchLine): ResultLine {
  return {
    id: createId(),
    custom_id: customId,
    response: null,
    error: { code, message, line: lineNumber, param: parameter },
  };
}

/** The result of a line that was not answered in time. */
export function expiredLine({ lineNumber, customId }: BatchLine): ResultLine {
  const message = "This request could not be executed before the completion window expired.";
  return {
    id: createId(),
    custom_id: customId,
    response: null,
    error: { code: "batch_expired", message, line: lineNumber, param: null },
  };
}

/** Characters that JSON leaves as they are, and at which other readers end a line, such as Python's `str.splitlines()`. */
const lineEnds = /[\u0085\u2028\u2029]/g;

/** A line of a results file as JSON, with its line end. No other character of it ends a line for any reader. */
export function toText(line: ResultLine): string {
  const escape = (end: string): string => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `${JSON.stringify(line).replaceAll(lineEnds, escape)}\n`;
}

function createId(): string {
  return `batch_req_${randomUuid().replaceAll("-", "")}`;
}
