/** One line of a batch's results: OpenAI's Batch output line. */
import { randomUUID } from "node:crypto";

import type { BadBatchLine } from "./batch-line.ts";

export interface ResultLine {
  readonly id: string;
  /** Of the line that this is the result of; null where it had none. */
  readonly custom_id: string | null;
  /** What POST on the line's URL answers, errors included; null for a line that is no request. */
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: object;
  } | null;
  readonly error: {
    readonly code: BadBatchLine["code"];
    readonly message: string;
    /** From 1. */
    readonly line: number;
    readonly param: string | null;
  } | null;
}

/** With which every line of a result file begins. */
export const resultLinePrefix = '{"id":"batch_req_';

export interface LineResponse {
  readonly statusCode: number;
  readonly requestId: string;
  readonly body: object;
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

function createId(): string {
  return `batch_req_${randomUUID().replaceAll("-", "")}`;
}
