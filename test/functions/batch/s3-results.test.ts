/** Results of a file on S3 whose segments are lost. */
import { CreateBucketCommand, DeleteObjectCommand, ListObjectsV2Command, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";

import { duplicateOf } from "../../../functions/batch/batch-line.ts";
import { errorLine, responseLine } from "../../../functions/batch/result-line.ts";
import { openS3Results } from "../../../functions/batch/s3-results.ts";
import { createLogger } from "../../../functions/logger.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";

const location = { Bucket: "results", Key: "out.jsonl" };
const logger = createLogger({ level: "error", write() {} });
const answer = (customId: string) => responseLine(customId, { statusCode: 200, requestId: "r", body: {} });

let aws: S3Server;

beforeAll(async () => {
  aws = await startS3Server();
  await aws.client.send(new CreateBucketCommand({ Bucket: location.Bucket }));
});

afterAll(() => aws.stop());

const open = (signal: AbortSignal) =>
  openS3Results({ client: aws.client, location, name: "batch", keepsObject: true, logger, signal });

test("a lost segment is missed, however many results of other lines the object has", async () => {
  const { client } = aws;
  const others = ["x", "y", "z"].map((id) => `${JSON.stringify(answer(id))}\n`).join("");
  await client.send(new PutObjectCommand({ ...location, Body: others }));
  const { signal } = new AbortController();
  const results = await open(signal);
  const bad = duplicateOf({ lineNumber: 2, customId: "a", url: "/v1/completions", body: {}, extraArguments: {} }, 1);
  for (const line of [answer("a"), errorLine(bad)]) await results.append(line);
  // Stores the segment.
  await results.close();
  const { Contents = [] } = await client.send(
    new ListObjectsV2Command({ Bucket: location.Bucket, Prefix: "out.jsonl." }),
  );
  expect(Contents).toHaveLength(1);
  for (const { Key } of Contents) await client.send(new DeleteObjectCommand({ ...location, Key }));
  await expect(results.finish()).rejects.toThrow("the results of 2 lines are missing");

  const again = await open(signal);
  for (const line of [answer("a"), errorLine(bad)]) await again.append(line);
  expect(await again.finish()).toEqual({ total: 5, completed: 4, failed: 1 });
});
