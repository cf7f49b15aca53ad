/** Creates the runner of jobs as the settings say. Imported after the port is open. */
import type { S3Client } from "@aws-sdk/client-s3";

import type { Engine } from "../../engine/index.ts";
import { toModelList } from "../api/routes/models.ts";
import { prepareLine } from "../batch/answer-line.ts";
import type { PreparedLine } from "../batch/answer-line.ts";
import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import type { BatchLine } from "../batch/batch-line.ts";
import type { WorkWindow } from "../batch/work-window.ts";
import { roomForBodies } from "../http/body-intake.ts";
import { HttpError } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import type { RequestSpan, Telemetry } from "../telemetry/telemetry.ts";
import { runFileJob } from "./file-job.ts";
import { jobKeyOf } from "./job-key.ts";
import { JobRunner } from "./job-runner.ts";
import type { ResultSink } from "./result-sink.ts";
import { createS3ResultSink } from "./sinks/s3-result-sink.ts";
import { createWebhookResultSink } from "./sinks/webhook-result-sink.ts";
import type { OpenJobSource } from "./sources/job-sources.ts";
import { describeTarget, isAllowed, readTarget } from "./targets.ts";
import type { Target } from "./targets.ts";

/** Delay before a failed job or a failing queue is tried again. It doubles with each failure. */
const retryOptions = { firstMs: 1_000, mostMs: 60_000 };
/** Time limit of one call to S3, with its retries. */
const S3_CALL_MS = 30_000;

export interface JobsDependencies {
  readonly config: Config;
  readonly service: Service;
  readonly engine: Engine;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly window: () => WorkWindow;
  readonly createS3Client: () => Promise<S3Client>;
  /** Absent if no traces are sent. */
  readonly telemetry?: Telemetry;
}

/** The engine must be ready. */
export async function createJobs(openSource: OpenJobSource, dependencies: JobsDependencies): Promise<JobRunner> {
  const { config, service, engine, metrics, logger, telemetry } = dependencies;
  const { jobs, maxBodyBytes } = config;
  const allowed = toTargets(jobs.allowedTargets);
  const targets = toTargets(jobs.results);
  const needsS3 = [...targets, ...allowed].some(({ kind }) => kind === "s3");
  const client = needsS3 ? await dependencies.createS3Client() : null;

  const openSink = (target: Target): ResultSink => {
    if (target.kind === "webhook") return createWebhookResultSink({ url: target.url, secret: jobs.webhookSecret });
    if (client === null) throw new Error("A result goes to S3, for which there is no client.");
    return createS3ResultSink({ client, location: target, callMs: S3_CALL_MS, logger });
  };
  const source = await openSource({
    leaseMs: jobs.leaseMs,
    maxNumDeliveries: jobs.maxDeliveries,
    awsRegion: config.s3.region,
    listModels: () => toModelList(service, config.servedModelNames),
    logger,
  });
  const sinks = targets.map(openSink);
  if (sinks.length === 0 && !source.answersSenders) {
    logger.warn("Results of jobs go only to places that the jobs name: JOB_RESULTS is not set.", {
      source: source.name,
    });
  }
  logger.info("Taking jobs.", { source: source.name, results: sinks.map(({ name }) => name) });
  const answer = { service, engine, metrics, logger, config };
  const prepare = (line: BatchLine, tenant: string, span?: RequestSpan): PreparedLine =>
    prepareLine(line, { ...answer, tenant, ...(span && { span }) });
  const window = dependencies.window();
  return new JobRunner({
    source,
    sinks,
    openTargets({ webhook }) {
      if (webhook === null) return [];
      const target = readTarget(webhook);
      if (target?.kind !== "webhook") throw refuse("webhook", "must be an http:// or https:// URL without credentials");
      if (!isAllowed(target, allowed)) {
        throw refuse("webhook", `is at ${describeTarget(target)}, which JOB_ALLOWED_TARGETS does not allow`);
      }
      return [openSink(target)];
    },
    prepareLine: prepare,
    ...(telemetry && { telemetry }),
    async runFile(leased, job, signal) {
      for (const [field, place] of [
        ["input", job.input],
        ["output", job.output],
      ] as const) {
        if (isAllowed(place, allowed)) continue;
        throw refuse(field, `is ${describeTarget(place)}, which JOB_ALLOWED_TARGETS does not allow`);
      }
      if (client === null) throw new Error("A file is on S3, for which there is no client.");
      const prepareOwn = (line: BatchLine): PreparedLine => prepare(line, leased.tenant ?? "");
      return runFileJob(jobKeyOf(leased), job, signal, {
        client,
        prepareLine: prepareOwn,
        window,
        maxBodyBytes,
        retry: retryOptions,
        logger,
      });
    },
    canCompute: () => service.state === "ready",
    window,
    maxNumDeliveries: jobs.maxDeliveries,
    maxMessageBytes: maxBodyBytes + LINE_ROOM_BYTES,
    // As much as all bodies of requests may hold.
    maxHeldBytes: roomForBodies(maxBodyBytes + LINE_ROOM_BYTES),
    retry: retryOptions,
    onOutcome: (outcome) => metrics.countJob(outcome),
    onNumRunning: (numRunning) => metrics.setRunningJobs(numRunning),
    logger,
  });
}

function toTargets(texts: readonly string[]): readonly Target[] {
  return texts.flatMap((text) => readTarget(text) ?? []);
}

function refuse(parameter: string, problem: string): HttpError {
  return new HttpError(400, "invalid_value", `${parameter} ${problem}.`, { parameter });
}
