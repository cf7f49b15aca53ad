/** Jobs from SQS. */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { refusalResult } from "../../../../functions/jobs/job-result.ts";
import { createSqsJobSource } from "../../../../functions/jobs/sources/sqs-job-source.ts";
import { regionOfQueue } from "../../../../functions/jobs/sources/sqs-region.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { createSqsQueue } from "../../../support/queues/sqs-queue.ts";
import { startFaultProxy } from "../../../support/servers/fault-proxy.ts";
import { startS3Server } from "../../../support/servers/s3-server.ts";
import type { S3Server } from "../../../support/servers/s3-server.ts";

/** Of SQS, with attributes. */
const MAX_MESSAGE_BYTES = 1024 ** 2;

let aws: S3Server;

beforeAll(async () => {
  aws = await startS3Server();
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
});

afterAll(() => aws.stop());

function open(queueUrl: string, leaseMs: number, lines: string[] = []) {
  const logger = createLogger({ level: "warn", write: (line) => void lines.push(line) });
  return createSqsJobSource({ queueUrl, region: "us-east-1", leaseMs, maxNumDeliveries: 5, logger, waitSeconds: 1 });
}

testJobSource("SQS", async () => {
  const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
  return {
    open: (leaseMs) => open(queue.url, leaseMs),
    send: queue.send,
    deadLetters: queue.deadLetters,
  };
});

test.for([
  ["https://sqs.eu-west-1.amazonaws.com/123456789012/jobs", "us-east-1", "eu-west-1"],
  ["https://sqs.cn-north-1.amazonaws.com.cn/123456789012/jobs", null, "cn-north-1"],
  ["https://sqs-fips.us-gov-west-1.amazonaws.com/123456789012/jobs", "us-east-1", "us-gov-west-1"],
  ["https://vpce-1a2b-3c4d.sqs.eu-west-1.vpce.amazonaws.com/123456789012/jobs", "us-east-1", "eu-west-1"],
  ["http://localhost:9324/000000000000/jobs", "eu-central-1", "eu-central-1"],
  ["http://localhost:9324/000000000000/jobs", null, undefined],
] as const)("calls of %s are signed for its region, whatever AWS_REGION says: %s", ([url, setting, region]) => {
  expect(regionOfQueue(url, setting)).toBe(region);
});

describe("SQS", () => {
  test.for([
    [null, /^.*The queue has no dead-letter queue\..*Give the queue a redrive policy.*\n$/],
    [5, /Set maxReceiveCount to more than JOB_MAX_DELIVERIES, which is 5\./],
    [6, /^$/],
  ] as const)("a queue with maxReceiveCount %s gets the warning %s", async ([maxReceiveCount, warning]) => {
    const { url } = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`, maxReceiveCount);
    const lines: string[] = [];
    await (await open(url, LEASE_MS, lines)).close();
    expect(lines.join("")).toMatch(warning);
  });

  test("a queue whose attributes may not be read still hands out jobs, and a missing one is an error", async () => {
    const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
    await using proxy = await startFaultProxy(aws.endpoint);
    proxy.decide(({ target }) => (target === "AmazonSQS.GetQueueAttributes" ? "deny" : "forward"));
    const lines: string[] = [];
    const source = await open(queue.url.replace(aws.endpoint, proxy.endpoint), LEASE_MS, lines);
    expect(lines.join("")).toContain("Grant sqs:GetQueueAttributes");
    await queue.send("{}");
    const [job] = await source.take(1, new AbortController().signal);
    await job!.complete({ jobId: job!.id, isSuccess: true, text: "{}" });
    await source.close();
    await expect(open(`${queue.url}-missing`, LEASE_MS)).rejects.toThrow(/does not exist/);
  });

  test("a rejected message of the maximum length goes to the dead letters, without its result", async () => {
    const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
    await using proxy = await startFaultProxy(aws.endpoint);
    // SQS counts attributes, and moto does not.
    let numRefused = 0;
    proxy.decide(({ target, body }) =>
      target === "AmazonSQS.SendMessage" && body.byteLength > MAX_MESSAGE_BYTES + 500 && ++numRefused > 0
        ? "invalid"
        : "forward",
    );
    const source = await open(queue.url.replace(aws.endpoint, proxy.endpoint), LEASE_MS);
    const body = "x".repeat(MAX_MESSAGE_BYTES);
    await queue.send(body);
    const [job] = await source.take(1, new AbortController().signal);
    const refusal = { code: "invalid_json", message: "The message is no JSON. ".repeat(30) };
    await job!.reject(refusalResult(job!.id, "\uffff", refusal));
    await source.close();
    expect(numRefused).toBe(1);
    expect((await queue.deadLetters()).map((dead) => dead === body)).toEqual([true]);
  });

  test("a rejected message of a fair queue goes to the dead letters", async () => {
    const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
    await using proxy = await startFaultProxy(aws.endpoint);
    // As SQS does for queues that are not FIFO, and moto does not.
    proxy.decide(({ body }) => (body.includes("MessageDeduplicationId") ? "invalid" : "forward"));
    const source = await open(queue.url.replace(aws.endpoint, proxy.endpoint), LEASE_MS);
    await queue.send("{}", undefined, "tenant-1");
    const [job] = await source.take(1, new AbortController().signal);
    await job!.reject(refusalResult(job!.id, null, { code: "invalid_value", message: "It is no job." }));
    await source.close();
    expect(await queue.deadLetters()).toEqual(["{}"]);
  });

  test("a lease is renewed for no longer than SQS hides a message", async () => {
    const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
    const source = await open(queue.url, 43_200_000);
    await queue.send("{}");
    const [job] = await source.take(1, new AbortController().signal);
    await job!.renew();
    expect(await queue.count()).toEqual({ numVisible: 0, numInFlight: 1 });
    await job!.release(0);
    await source.close();
  });
});
