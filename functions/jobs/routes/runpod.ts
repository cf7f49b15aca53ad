/** The operations of a RunPod endpoint, as runpod/docs publishes them (serverless/endpoints/operation-reference.mdx). */
import type { Context, Handler } from "hono";
import { z } from "zod";

import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { HttpError } from "../../http/errors.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { RunpodJob, RunpodJobs } from "../runpod-local/runpod-jobs.ts";

type RunpodContext = Context<AppEnvironment>;

/** How long /runsync waits by default; `?wait` sets it. */
const WAIT_MS = 90_000;
/** How long /stream waits for a chunk. Clients poll. */
const STREAM_WAIT_MS = 1_000;
const MAX_MS = 7 * 24 * 60 * 60 * 1000;

const milliseconds = (min: number, max: number) =>
  z.int("must be an integer").min(min, `must be at least ${min}`).max(max, `must be at most ${max}`);
const requestSchema = z.looseObject({
  input: z.unknown().optional(),
  webhook: z.string("must be a string").nullish(),
  policy: z
    .looseObject({
      executionTimeout: milliseconds(5_000, MAX_MS).nullish(),
      ttl: milliseconds(10_000, MAX_MS).nullish(),
    })
    .nullish(),
});
const waitSchema = z.object({ wait: z.coerce.number().pipe(milliseconds(1_000, 300_000)).optional() });

export function runRoute(dependencies: AppDependencies, jobs: RunpodJobs): Handler<AppEnvironment> {
  return async (c) => {
    const { id, status } = await submit(c, dependencies, jobs, "run");
    return c.json({ id, status: status === "IN_PROGRESS" ? "IN_QUEUE" : status });
  };
}

/** Answers with the state of the job if it does not end in time. */
export function runSyncRoute(dependencies: AppDependencies, jobs: RunpodJobs): Handler<AppEnvironment> {
  return async (c) => {
    const { wait = WAIT_MS } = parseFields(waitSchema, c.req.query());
    const job = await submit(c, dependencies, jobs, "runsync");
    const deadline = performance.now() + wait;
    while (job.endedAt === null && performance.now() < deadline && !c.req.raw.signal.aborted) {
      await jobs.whenChanged(job, deadline - performance.now());
    }
    return c.json(toState(job));
  };
}

export function statusRoute(jobs: RunpodJobs): Handler<AppEnvironment> {
  return (c) => c.json(toState(find(c, jobs)));
}

/** Each chunk is in one answer. */
export function streamRoute(jobs: RunpodJobs): Handler<AppEnvironment> {
  return async (c) => {
    const job = find(c, jobs);
    if (job.chunks.length === 0 && job.endedAt === null) await jobs.whenChanged(job, STREAM_WAIT_MS);
    const stream = jobs.readChunks(job).map((output) => ({ output }));
    const { output: _, ...state } = toState(job);
    return c.json({ ...state, stream });
  };
}

export function cancelRoute(jobs: RunpodJobs): Handler<AppEnvironment> {
  return (c) => {
    const job = find(c, jobs);
    jobs.cancel(job);
    return c.json({ id: job.id, status: job.status });
  };
}

export function purgeRoute(jobs: RunpodJobs): Handler<AppEnvironment> {
  return (c) => c.json({ removed: jobs.purge(c.get("tenant")), status: "completed" });
}

export function runpodHealthRoute(jobs: RunpodJobs): Handler<AppEnvironment> {
  return (c) => {
    const counts = jobs.count(c.get("tenant"));
    const inProgress = counts.get("IN_PROGRESS") ?? 0;
    return c.json({
      jobs: {
        completed: counts.get("COMPLETED") ?? 0,
        failed: (counts.get("FAILED") ?? 0) + (counts.get("TIMED_OUT") ?? 0),
        inProgress,
        inQueue: counts.get("IN_QUEUE") ?? 0,
        retried: 0,
      },
      workers: { idle: inProgress > 0 ? 0 : 1, running: inProgress > 0 ? 1 : 0 },
    });
  };
}

async function submit(
  c: RunpodContext,
  { service, bodies, config }: AppDependencies,
  jobs: RunpodJobs,
  kind: RunpodJob["kind"],
): Promise<RunpodJob> {
  service.checkRoom();
  const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
  const { input, webhook, policy } = parseFields(requestSchema, body);
  if (input === undefined) {
    throw new HttpError(400, "invalid_value", "input is required.", { parameter: "input" });
  }
  const job = jobs.run(c.get("tenant"), kind, {
    input: JSON.stringify(isObject(input) && webhook ? { ...input, webhook } : input),
    executionTimeoutMs: policy?.executionTimeout ?? undefined,
    ttlMs: policy?.ttl ?? undefined,
  });
  if (job === null) {
    throw new HttpError(429, "too_many_jobs", "Too many jobs are waiting or running; send the job again later.", {
      headers: { "Retry-After": "5" },
    });
  }
  Object.assign(c.get("logFields"), { id: job.id });
  return job;
}

function find(c: RunpodContext, jobs: RunpodJobs): RunpodJob {
  const id = c.req.param("job") ?? "";
  const job = jobs.find(c.get("tenant"), id);
  if (job !== null) return job;
  throw new HttpError(404, "job_not_found", `There is no job ${id.slice(0, 100)}, or its result has expired.`);
}

function toState({ id, status, result, createdAt, takenAt, endedAt }: RunpodJob): Readonly<Record<string, unknown>> {
  return {
    id,
    status,
    ...(takenAt !== null && { delayTime: takenAt - createdAt }),
    ...(takenAt !== null && endedAt !== null && { executionTime: endedAt - takenAt }),
    ...result,
  };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
