/** Results of jobs: a line of OpenAI's Batch output, whose id is that of the job. */
import type { LineResponse } from "../batch/result-line.ts";

export interface JobResult {
  readonly jobId: string;
  /** Whether the answer has status 200. */
  readonly isSuccess: boolean;
  /** JSON: `{"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": {"code", "message"}}`. */
  readonly text: string;
}

export function answerResult(
  jobId: string,
  customId: string,
  { statusCode, requestId, body }: LineResponse,
): JobResult {
  const response = { status_code: statusCode, request_id: requestId, body };
  return {
    jobId,
    isSuccess: statusCode === 200,
    text: JSON.stringify({ id: jobId, custom_id: customId, response, error: null }),
  };
}

/** Why a job has no answer. */
export interface JobRefusal {
  readonly code: string;
  readonly message: string;
  /** Path of the invalid field in the message: `body.messages[0].content`. */
  readonly parameter?: string | null;
}

export function refusalResult(
  jobId: string,
  customId: string | null,
  { code, message, parameter = null }: JobRefusal,
): JobResult {
  const error = { code, message, param: parameter };
  return {
    jobId,
    isSuccess: false,
    text: JSON.stringify({ id: jobId, custom_id: customId, response: null, error }),
  };
}
