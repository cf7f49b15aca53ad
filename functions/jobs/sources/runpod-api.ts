/**
 * RunPod's API for the workers of queue-based endpoints. It is published as the Python SDK of workers: runpod-python
 * 1.12.0 at 07fc6e2 of 2026-08-10, runpod/serverless/modules/rp_job.py, rp_http.py and rp_ping.py.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";

import { sliceElements } from "./json-slices.ts";

/** The version of the SDK whose protocol this is. RunPod reads it from heartbeats. */
const protocolVersion = "1.12.0";

/** RunPod holds a call for jobs or stop signals for less than this. The SDK's limit. */
const LONG_POLL_MS = 90_000;
/** Time limit of the other calls. */
const CALL_MS = 30_000;
/** RunPod's limit for the input of `/runsync` is 20 MB, that of `/run` 10 MB. */
const MAX_JOB_BYTES = 21 * 1024 ** 2;
/** Bounds the memory of one call: this many of the largest jobs. */
const MAX_JOBS_PER_CALL = 10;
/** Delays before a result or chunk is sent again: Fibonacci as in the SDK, which gives up after three attempts. */
const defaultRetryMs: readonly number[] = [1_000, 1_000, 2_000, 3_000, 5_000, 8_000, 13_000];

/** As RunPod sets them for workers. `$ID` and `$RUNPOD_POD_ID` in the URLs stand for ids. */
export interface RunpodWorkerSettings {
  /** RUNPOD_WEBHOOK_GET_JOB: contains `/job-take/`. */
  readonly jobUrl: string;
  /** RUNPOD_WEBHOOK_POST_OUTPUT. */
  readonly outputUrl: string;
  /** RUNPOD_WEBHOOK_POST_STREAM. */
  readonly streamUrl: string;
  /** RUNPOD_WEBHOOK_PING; null sends no heartbeats. */
  readonly pingUrl: string | null;
  /** RUNPOD_AI_API_KEY, "" without one. */
  readonly apiKey: string;
  /** RUNPOD_POD_ID. */
  readonly workerId: string;
}

/** A call that RunPod answered with a status that says no. */
export class RunpodError extends Error {
  override readonly name = "RunpodError";
  readonly status: number;

  constructor(call: string, status: number, detail: string) {
    super(`RunPod's API answered ${call} with status ${status}${detail === "" ? "" : `: ${detail.slice(0, 300)}`}.`);
    this.status = status;
  }

  /** Whether the same call may succeed later. */
  get isTemporary(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

export interface RunpodApi {
  /**
   * Waits for at most `maxNumJobs` jobs, as texts of JSON. Aborting `signal` ends the wait, but not the arrival of jobs
   * that were handed out. Rejects with RunpodError, also for 429.
   */
  takeJobs(maxNumJobs: number, isWorking: boolean, signal: AbortSignal): Promise<readonly string[]>;
  /** Waits for ids of jobs that are cancelled. */
  takeStopSignals(signal: AbortSignal): Promise<readonly string[]>;
  /** Tells RunPod that the worker lives and which jobs it has. */
  ping(jobIds: readonly string[], signal: AbortSignal): Promise<void>;
  /** Sends a result, with retries. Rejects with RunpodError if RunPod refuses it. */
  postResult(jobId: string, body: object, isStream: boolean): Promise<void>;
  /** Sends a chunk of the answer, with retries. */
  postChunk(jobId: string, output: unknown): Promise<void>;
}

/** Times in milliseconds; each has a default. */
export interface RunpodTimes {
  /** Delays before a result or chunk is sent again. */
  readonly retryMs?: readonly number[];
  /** Longest wait for jobs and stop signals. */
  readonly longPollMs?: number;
  /** Time limit of the other calls. */
  readonly callMs?: number;
}

export function createRunpodApi(
  settings: RunpodWorkerSettings,
  { retryMs = defaultRetryMs, longPollMs = LONG_POLL_MS, callMs = CALL_MS }: RunpodTimes = {},
): RunpodApi {
  const { workerId, apiKey } = settings;
  const headers = { "user-agent": "fovea", ...(apiKey !== "" && { authorization: apiKey }) };
  const jobUrl = settings.jobUrl.replaceAll("$RUNPOD_POD_ID", workerId).replaceAll("$ID", workerId);
  const withWorker = (url: string): string => url.replaceAll("$RUNPOD_POD_ID", workerId);
  const outputUrl = withWorker(settings.outputUrl);
  const streamUrl = withWorker(settings.streamUrl);

  /** Null for 204. `signal` ends the wait for the answer. */
  async function poll(call: string, url: string, maxBytes: number, signal: AbortSignal): Promise<string | null> {
    const waiting = new AbortController();
    const stop = (): void => waiting.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    const timer = setTimeout(stop, longPollMs);
    let answer: Awaited<ReturnType<typeof request>>;
    try {
      answer = await request(url, { headers, signal: waiting.signal, headersTimeout: 0, bodyTimeout: callMs });
    } catch (error) {
      if (waiting.signal.aborted) return null;
      throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
    const text = await readText(answer.body, call, maxBytes);
    if (answer.statusCode === 204) return null;
    if (answer.statusCode !== 200) throw new RunpodError(call, answer.statusCode, text);
    return text;
  }

  async function post(url: string, jobId: string, body: object, isStream: boolean): Promise<void> {
    const target = withQuery(url.replaceAll("$ID", encodeURIComponent(jobId)), { isStream: String(isStream) });
    const payload = JSON.stringify(body);
    for (let attempt = 0; ; attempt++) {
      try {
        const { statusCode, body: answer } = await request(target, {
          method: "POST",
          headers: {
            ...headers,
            // The SDK's headers: RunPod reads JSON from a form.
            "content-type": "application/x-www-form-urlencoded",
            charset: "utf-8",
            "x-request-id": encodeURIComponent(jobId),
          },
          body: payload,
          signal: AbortSignal.timeout(callMs),
        });
        const detail = await readText(answer, "a result", MAX_JOB_BYTES);
        if (statusCode >= 200 && statusCode < 300) return;
        throw new RunpodError(`a post for ${jobId}`, statusCode, detail);
      } catch (error) {
        const delayMs = retryMs[attempt];
        if (delayMs === undefined || (error instanceof RunpodError && !error.isTemporary)) throw error;
        await sleep(delayMs);
      }
    }
  }

  return {
    async takeJobs(maxNumJobs, isWorking, signal) {
      const numJobs = Math.min(maxNumJobs, MAX_JOBS_PER_CALL);
      const inProgress = { job_in_progress: isWorking ? "1" : "0" };
      const url =
        numJobs === 1
          ? withQuery(jobUrl, inProgress)
          : withQuery(jobUrl.replace("/job-take/", "/job-take-batch/"), { batch_size: String(numJobs), ...inProgress });
      const text = await poll("job-take", url, numJobs * MAX_JOB_BYTES, signal).catch((error: unknown) => {
        // RunPod answers 400 while FlashBoot holds the worker back.
        if (error instanceof RunpodError && error.status === 400) return null;
        throw error;
      });
      if (text === null || text.trim() === "") return [];
      return text.trimStart().startsWith("[") ? (sliceElements(text) ?? []) : [text];
    },
    async takeStopSignals(signal) {
      const text = await poll("job-stop", jobUrl.replace("/job-take/", "/job-stop/"), MAX_JOB_BYTES, signal);
      if (text === null) return [];
      const { jobsToStop } = (JSON.parse(text) ?? {}) as { readonly jobsToStop?: unknown };
      return Array.isArray(jobsToStop) ? jobsToStop.filter((id) => typeof id === "string") : [];
    },
    async ping(jobIds, signal) {
      if (settings.pingUrl === null) return;
      const url = withWorker(settings.pingUrl).replaceAll("$ID", workerId);
      const query = { ...(jobIds.length > 0 && { job_id: jobIds.join(",") }), runpod_version: protocolVersion };
      const { statusCode, body } = await request(withQuery(url, query), { headers, signal });
      const detail = await readText(body, "a heartbeat", MAX_JOB_BYTES);
      if (statusCode >= 400) throw new RunpodError("a heartbeat", statusCode, detail);
    },
    postResult: (jobId, body, isStream) => post(outputUrl, jobId, body, isStream),
    postChunk: (jobId, output) => post(streamUrl, jobId, { output }, false),
  };
}

/** The URLs may have a query. */
function withQuery(url: string, parameters: Readonly<Record<string, string>>): string {
  return `${url}${url.includes("?") ? "&" : "?"}${new URLSearchParams(parameters).toString()}`;
}

async function readText(body: AsyncIterable<Buffer>, call: string, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let numBytes = 0;
  for await (const chunk of body) {
    numBytes += chunk.byteLength;
    if (numBytes > maxBytes) throw new Error(`RunPod's answer to ${call} has more than ${maxBytes} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
