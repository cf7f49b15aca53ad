/** Results of jobs: a line of OpenAI's Batch output, whose id is that of the job. */
import type { LineResponse } from "../batch/result-line.ts";

/** The type of events with a result, which Standard Webhooks asks for. */
export const resultEventType = "fovea.job.finished";

export interface JobResult {
  readonly jobId: string;
  /** Whether the answer has status 200. */
  readonly isSuccess: boolean;
  /** Whether there is an error in place of an answer. Default: false. */
  readonly isRefusal?: boolean;
  /** Whether another try may give another result, as after a refusal and an answer with status 5xx. Default: false. */
  readonly isTransient?: boolean;
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
    isTransient: statusCode >= 500,
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
    isRefusal: true,
    isTransient: true,
    text: JSON.stringify({ id: jobId, custom_id: customId, response: null, error }),
  };
}

/** A result that a place has stored. */
export function storedResult(jobId: string, text: string): JobResult {
  return { jobId, text, isSuccess: false, ...kindOf(text) };
}

function kindOf(text: string): Partial<JobResult> {
  try {
    const { response } = JSON.parse(text) as { readonly response?: { readonly status_code?: unknown } | null };
    const status = response?.status_code;
    const isRefusal = response === null;
    return {
      isSuccess: status === 200,
      isRefusal,
      isTransient: isRefusal || (typeof status === "number" && status >= 500),
    };
  } catch {
    return {};
  }
}
