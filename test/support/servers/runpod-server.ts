/**
 * RunPod's side of a queue-based endpoint: the API of workers as runpod-python uses it (1.12.0 at 07fc6e2 of 2026-08-10:
 * rp_job.py, rp_http.py, rp_ping.py, rp_scale.py), and job states as docs/serverless/endpoints/job-states.mdx of
 * runpod/docs describes them (a900806 of 2026-08-20). It notes every call that breaks this contract. A worker of runpod
 * 1.12.0 from PyPI completed, streamed, failed and stopped jobs of this server, and broke the contract in no call.
 */
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { RunpodWorkerSettings } from "../../../functions/jobs/sources/runpod-api.ts";

export type RunpodStatus = "IN_QUEUE" | "IN_PROGRESS" | "COMPLETED" | "FAILED" | "CANCELLED";

export interface RunpodJob {
  readonly id: string;
  /** JSON. */
  readonly input: string;
  status: RunpodStatus;
  /** The last worker that took it. */
  worker: string | null;
  numDeliveries: number;
  readonly chunks: unknown[];
  output?: unknown;
  error?: unknown;
  isStream?: boolean;
}

/** Instead of an answer. `cut` ends the connection before the answer. */
export type RunpodFault = number | "hang" | "cut";

export interface RunpodServer extends AsyncDisposable {
  /** Settings of another worker. */
  readonly worker: () => RunpodWorkerSettings;
  /** The environment of another worker. */
  readonly environment: () => Record<string, string>;
  /** Queues an input, which need not be JSON. Returns the job's id. */
  readonly run: (input: string, id?: string) => string;
  readonly job: (id: string) => RunpodJob;
  readonly jobs: () => readonly RunpodJob[];
  readonly cancel: (id: string) => void;
  /** Faults for calls whose path contains `call`, one per call. */
  readonly fail: (call: string, ...faults: readonly RunpodFault[]) => void;
  /** Faults that are not used yet. */
  readonly numFaults: () => number;
  /** The next job-take gets this text. */
  readonly handOut: (text: string) => void;
  /** Texts that are not handed out yet. */
  readonly numTexts: () => number;
  /** Paths with queries, in order. */
  readonly calls: readonly string[];
  readonly violations: readonly string[];
  readonly stop: () => Promise<void>;
}

export interface RunpodServerOptions {
  /** How long calls for jobs and stop signals wait. RunPod's do for less than 90 s. */
  readonly holdMs?: number;
  /**
   * A worker that sends no heartbeat for this long is gone; its jobs go back to the queue. Default: longer than any
   * machine keeps a worker from sending one.
   */
  readonly workerTimeoutMs?: number;
}

const apiKey = "worker-key";
/** How often calls that wait look for something new. */
const lookMs = 1;
const expiryMs = 10;

export async function startRunpodServer(options: RunpodServerOptions = {}): Promise<RunpodServer> {
  const { holdMs = 200, workerTimeoutMs = 600_000 } = options;
  const jobs = new Map<string, RunpodJob>();
  const heartbeats = new Map<string, number>();
  const stopped = new Map<string, string[]>();
  const texts: string[] = [];
  const calls: string[] = [];
  const violations: string[] = [];
  const faults: { readonly call: string; readonly fault: RunpodFault }[] = [];

  const expire = setInterval(() => {
    for (const job of jobs.values()) {
      if (job.status !== "IN_PROGRESS" || performance.now() - heartbeats.get(job.worker!)! < workerTimeoutMs) continue;
      job.status = "IN_QUEUE";
    }
  }, expiryMs);

  function violate(problem: string, request: IncomingMessage): void {
    violations.push(`${request.method} ${request.url}: ${problem}`);
  }

  function takeJobs(worker: string, numJobs: number): RunpodJob[] {
    const queued = [...jobs.values()].filter(({ status }) => status === "IN_QUEUE").slice(0, numJobs);
    for (const job of queued) {
      Object.assign(job, { status: "IN_PROGRESS", worker, numDeliveries: job.numDeliveries + 1 });
      heartbeats.set(worker, performance.now());
    }
    return queued;
  }

  /** Inputs may be invalid JSON, so answers are put together as text. */
  function toText({ id, input }: RunpodJob): string {
    return `{"delayTime": 12, "id": ${JSON.stringify(id)}, "input": ${input}, "status": "IN_PROGRESS", "webhook": null}`;
  }

  async function hold<Value>(response: ServerResponse, look: () => Value | null): Promise<Value | null> {
    const end = performance.now() + holdMs;
    for (;;) {
      if (response.closed || response.destroyed) return null;
      const found = look();
      if (found !== null || performance.now() > end) return found;
      await new Promise((resolve) => setTimeout(resolve, lookMs));
    }
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readBody(request);
    const { pathname, searchParams: query } = new URL(request.url ?? "", "http://runpod");
    const [, , , call = "", worker = "", jobId = ""] = pathname.split("/").map(decodeURIComponent);
    calls.push(request.url ?? "");
    const planned = faults.find((fault) => pathname.includes(fault.call));
    if (planned !== undefined) {
      faults.splice(faults.indexOf(planned), 1);
      const { fault } = planned;
      if (fault === "hang") return;
      if (fault === "cut") return void response.destroy();
      return void response.writeHead(fault, { "content-type": "text/plain" }).end("no");
    }
    if (request.headers.authorization !== apiKey) violate("no key", request);
    if (query.get("gpu") !== "NVIDIA H100") violate("lost the query of its URL", request);
    const json = (text: string): void => void response.writeHead(200, { "content-type": "application/json" }).end(text);
    const none = (): void => void response.writeHead(204).end();

    switch (call) {
      case "job-take":
      case "job-take-batch": {
        const isBatch = call === "job-take-batch";
        const numJobs = isBatch ? Number(query.get("batch_size")) : 1;
        if (!(numJobs >= 1) || (isBatch && numJobs < 2)) violate("a bad batch_size", request);
        const isWorking = [...jobs.values()].some((job) => job.worker === worker && job.status === "IN_PROGRESS");
        const said = query.get("job_in_progress");
        if (said !== "0" && said !== "1") violate("no job_in_progress", request);
        if (isWorking && said === "0") violate("job_in_progress=0 with jobs", request);
        const taken = await hold(response, () => {
          if (texts.length > 0) return texts.shift()!;
          const found = takeJobs(worker, numJobs);
          return found.length > 0 ? found : null;
        });
        if (taken === null) return none();
        if (typeof taken === "string") return json(taken);
        return json(isBatch ? `[${taken.map(toText).join(",")}]` : toText(taken[0]!));
      }
      case "job-stop": {
        const ids = await hold(response, () => {
          const found = stopped.get(worker) ?? [];
          stopped.delete(worker);
          return found.length > 0 ? found : null;
        });
        return ids === null ? none() : json(JSON.stringify({ jobsToStop: ids }));
      }
      case "ping": {
        if (query.get("runpod_version") === null) violate("no runpod_version", request);
        heartbeats.set(worker, performance.now());
        return void response.writeHead(200).end();
      }
      case "job-done":
      case "job-stream": {
        const job = jobs.get(jobId);
        if (request.method !== "POST") violate("not a POST", request);
        if (request.headers["content-type"] !== "application/x-www-form-urlencoded") violate("content type", request);
        if (request.headers["x-request-id"] !== jobId) violate("X-Request-ID", request);
        const isStream = query.get("isStream");
        if (isStream !== "true" && isStream !== "false") violate("no isStream", request);
        if (job === undefined || job.status !== "IN_PROGRESS" || job.worker !== worker) {
          return void response.writeHead(400).end("no such job in progress");
        }
        const result = JSON.parse(body) as { readonly output?: unknown; readonly error?: unknown };
        if ((result.output === undefined) === (result.error === undefined)) violate("not an output or error", request);
        if (call === "job-stream") {
          if (body.length > 1_000_000) violate("a chunk of more than 1 MB", request);
          job.chunks.push(result.output);
        } else {
          if (result.error !== undefined && typeof result.error !== "string") violate("error is no text", request);
          Object.assign(job, result, { isStream: isStream === "true" });
          job.status = result.error === undefined ? "COMPLETED" : "FAILED";
        }
        return void response.writeHead(200).end();
      }
      default:
        violate("no such call", request);
        response.writeHead(404).end();
    }
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      violate(String(error), request);
      response.writeHead(500).end();
    });
  });
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v2/endpoint`;
  const query = "?gpu=NVIDIA+H100";
  const urls = {
    jobUrl: `${base}/job-take/$ID${query}`,
    outputUrl: `${base}/job-done/$RUNPOD_POD_ID/$ID${query}`,
    streamUrl: `${base}/job-stream/$RUNPOD_POD_ID/$ID${query}`,
    pingUrl: `${base}/ping/$RUNPOD_POD_ID${query}`,
  };

  async function stop(): Promise<void> {
    clearInterval(expire);
    const closed = Promise.withResolvers<void>();
    server.close(() => closed.resolve());
    server.closeAllConnections();
    await closed.promise;
  }

  return {
    worker: () => ({ ...urls, apiKey, workerId: `worker-${randomUUID()}` }),
    environment: () => ({
      RUNPOD_WEBHOOK_GET_JOB: urls.jobUrl,
      RUNPOD_WEBHOOK_POST_OUTPUT: urls.outputUrl,
      RUNPOD_WEBHOOK_POST_STREAM: urls.streamUrl,
      RUNPOD_WEBHOOK_PING: urls.pingUrl,
      RUNPOD_AI_API_KEY: apiKey,
      RUNPOD_POD_ID: `worker-${randomUUID()}`,
      RUNPOD_PING_INTERVAL: "200",
    }),
    run(input, id = `${randomUUID()}-u1`) {
      jobs.set(id, { id, input, status: "IN_QUEUE", worker: null, numDeliveries: 0, chunks: [] });
      return id;
    },
    job: (id) => jobs.get(id)!,
    jobs: () => [...jobs.values()],
    cancel(id) {
      const job = jobs.get(id)!;
      job.status = "CANCELLED";
      if (job.worker !== null) stopped.set(job.worker, [...(stopped.get(job.worker) ?? []), id]);
    },
    fail: (call, ...list) => void faults.push(...list.map((fault) => ({ call, fault }))),
    numFaults: () => faults.length,
    handOut: (text) => void texts.push(text),
    numTexts: () => texts.length,
    calls,
    violations,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
