/** Creates the runner of jobs as the settings say. Imported after the port is open. */
import type { S3Client } from "@aws-sdk/client-s3";

import type { Engine } from "../../engine/index.ts";
import { toModelList } from "../api/routes/models.ts";
import { prepareLine } from "../batch/answer-line.ts";
import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import type { WorkWindow } from "../batch/work-window.ts";
import { HttpError } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import { JobRunner } from "./job-runner.ts";
import type { JobSource } from "./job-source.ts";
import type { ResultSink } from "./result-sink.ts";
import { createS3ResultSink } from "./sinks/s3-result-sink.ts";
import { createWebhookResultSink } from "./sinks/webhook-result-sink.ts";
import { openJobSource } from "./sources/job-sources.ts";
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
}

/**
 * The engine must be ready.
 *
 * @throws ConfigError for an unknown kind of queue.
 */
export async function createJobs(address: string | JobSource, dependencies: JobsDependencies): Promise<JobRunner> {
  const { config, service, engine, metrics, logger } = dependencies;
  const { jobs, maxBodyBytes } = config;
  const allowed = toTargets(jobs.allowedTargets);
  const targets = toTargets(jobs.results);
  const needsS3 = [...targets, ...allowed].some(({ kind }) => kind === "s3");
  const client = needsS3 ? await dependencies.createS3Client() : null;

  const openSink = (target: Target): ResultSink => {
    if (target.kind === "webhook") return createWebhookResultSink({ url: target.url, secret: jobs.webhookSecret });
    if (client === null) throw new Error("A result goes to S3, for which there is no client.");
    return createS3ResultSink({ client, location: target, callMs: S3_CALL_MS });
  };
  const settings = {
    leaseMs: jobs.leaseMs,
    awsRegion: config.s3.region,
    runpod: jobs.runpod,
    listModels: () => toModelList(service, config.servedModelNames),
    logger,
  };
  const source = typeof address === "string" ? await openJobSource(address, settings) : address;
  const sinks = targets.map(openSink);
  if (sinks.length === 0 && !source.answersSenders) {
    logger.warn("Results of jobs go only to places that the jobs name: JOB_RESULTS is not set.", {
      source: source.name,
    });
  }
  logger.info("Taking jobs.", { source: source.name, results: sinks.map(({ name }) => name) });
  const answer = { service, engine, metrics, logger, config, tenant: "" };
  const runner = new JobRunner({
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
    prepareLine: (line) => prepareLine(line, answer),
    async runFile() {
      throw refuse("input", "is a file; this queue takes single requests");
    },
    window: dependencies.window(),
    maxNumDeliveries: jobs.maxDeliveries,
    maxMessageBytes: maxBodyBytes + LINE_ROOM_BYTES,
    retry: retryOptions,
    onOutcome(outcome, numRunning) {
      metrics.countJob(outcome);
      metrics.setRunningJobs(numRunning);
    },
    logger,
  });
  return runner;
}

function toTargets(texts: readonly string[]): readonly Target[] {
  return texts.flatMap((text) => readTarget(text) ?? []);
}

function refuse(parameter: string, problem: string): HttpError {
  return new HttpError(400, "invalid_value", `${parameter} ${problem}.`, { parameter });
}
