/** Jobs from SQS. */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll } from "vitest";

import { createSqsJobSource } from "../../../../functions/jobs/sources/sqs-job-source.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { startS3Server } from "../../../support/s3-server.ts";
import type { S3Server } from "../../../support/s3-server.ts";
import { createSqsQueue } from "../../../support/sqs-queue.ts";

let aws: S3Server;

beforeAll(async () => {
  aws = await startS3Server();
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
});

afterAll(() => aws.stop());

testJobSource("SQS", async () => {
  const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
  return {
    open: async () =>
      createSqsJobSource({ queueUrl: queue.url, region: "us-east-1", leaseMs: LEASE_MS, waitSeconds: 1 }),
    send: queue.send,
    deadLetters: queue.deadLetters,
  };
});
