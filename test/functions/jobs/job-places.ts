/** A queue of BullMQ, a bucket, and services that take jobs from the one and have files and results in the other. */
import { randomUUID } from "node:crypto";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { Queue } from "bullmq";
import type { Job } from "bullmq";
import { expect } from "vitest";

import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

export const bucket = "results";
export const short = { prompt: "a red", max_tokens: 3, temperature: 0 };

export interface Result {
  readonly id: string;
  readonly custom_id: string | null;
  readonly response: {
    readonly status_code: number;
    readonly body: { readonly choices?: unknown; readonly request_counts?: unknown };
  } | null;
  readonly error: { readonly code: string; readonly message: string; readonly param: string | null } | null;
}

export interface JobPlaces extends AsyncDisposable {
  readonly redis: RedisServer;
  readonly aws: S3Server;
  /** A queue of its own, and a function that starts services which take jobs from it. */
  startWithQueue(
    settings?: Readonly<Record<string, string>>,
  ): Promise<{ readonly queue: Queue; readonly start: () => Promise<RunningService> }>;
}

export async function startJobPlaces(): Promise<JobPlaces> {
  const [redis, aws] = await Promise.all([startRedisServer(), startS3Server()]);
  await aws.client.send(new CreateBucketCommand({ Bucket: bucket }));
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
  const queues: Queue[] = [];
  return {
    redis,
    aws,
    async startWithQueue(settings = {}) {
      const name = `jobs-${randomUUID()}`;
      const queue = new Queue(name, { connection: { url: redis.url } });
      queues.push(queue);
      const start = (): Promise<RunningService> =>
        startService({
          JOB_SOURCE: `${redis.url}?queue=${name}`,
          AWS_ENDPOINT_URL_S3: aws.endpoint,
          AWS_REGION: "us-east-1",
          BATCH_STORE: "none",
          MAX_NUM_SEQS: "4",
          ...settings,
        });
      return { queue, start };
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(queues.map((queue) => queue.close()));
      await redis.kill();
      await aws.stop();
    },
  };
}

export async function returned(queue: Queue, { id = "" }: Job): Promise<Result> {
  await expect.poll(async () => (await queue.getJob(id))?.getState()).toBe("completed");
  return (await queue.getJob(id))?.returnvalue as Result;
}

export async function failed(queue: Queue, { id = "" }: Job): Promise<Result> {
  await expect.poll(async () => (await queue.getJob(id))?.getState()).toBe("failed");
  return JSON.parse((await queue.getJob(id))?.failedReason ?? "") as Result;
}
