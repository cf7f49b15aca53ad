/** Webhooks that do not take a result. */
import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";

import { answerResult } from "../../../functions/jobs/job-result.ts";
import { ResultRefusedError } from "../../../functions/jobs/result-sink.ts";
import { resultKey } from "../../../functions/jobs/sinks/s3-result-sink.ts";
import { createWebhookResultSink } from "../../../functions/jobs/sinks/webhook-result-sink.ts";
import { startWebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import type { WebhookReceiver } from "../../support/servers/webhook-receiver.ts";

async function* zeros(): AsyncGenerator<Buffer> {
  for (;;) yield Buffer.alloc(65_536);
}
const bomb = gzipSync(Buffer.alloc(64 * 1024 ** 2));
const never = new AbortController().signal;
const result = answerResult("job", "a", { statusCode: 200, requestId: "r", body: {} });
const key = { jobId: "job", messageDigest: "" };

let hooks: WebhookReceiver;

beforeAll(async () => {
  hooks = await startWebhookReceiver();
});

afterAll(() => hooks[Symbol.asyncDispose]());

/** @param attemptTimeoutMs Short for receivers that hang. Default: no attempt takes that long. */
const open = (path: string, attemptTimeoutMs = 60_000) =>
  createWebhookResultSink({ url: `${hooks.url}${path}`, secret: null, retryMs: [1, 1, 1], attemptTimeoutMs });

const receivedAt = (path: string) => hooks.received.filter((webhook) => webhook.path === path);

test("a receiver that hangs twice gets the result with the third attempt", async () => {
  let numHung = 0;
  hooks.answer((_, response) => void (numHung++ < 2 || response.writeHead(204).end()));
  await open("/hang", 1_000).put(result, key, never);
  expect(receivedAt("/hang")).toHaveLength(3);
  expect(new Set(receivedAt("/hang").map(({ headers }) => headers["webhook-id"]))).toEqual(new Set(["job"]));
});

test.for([
  ["answers with 500", 500, /answered with status 500/, 4],
  ["redirects to an address inside", 302, /answered with status 302/, 4],
  ["redirects the body to an address inside", 307, /answered with status 307/, 4],
  ["is gone", 410, /answered with status 410/, 1],
  ["always hangs", null, /abort|timeout/i, 4],
] as const)("a receiver that %s is given up with the reason", async ([, status, reason, numAttempts]) => {
  const path = `/${String(status)}`;
  hooks.answer((_, response) => {
    if (status !== null) response.writeHead(status, { location: `${hooks.url}/inside` }).end();
  });
  const sink = open(path, status === null ? 300 : undefined);
  await expect(sink.put(result, key, never)).rejects.toThrow(reason);
  expect(receivedAt(path)).toHaveLength(numAttempts);
  expect(receivedAt("/inside")).toEqual([]);
});

test("an abort ends the delivery to a receiver that hangs", async () => {
  hooks.answer(() => {});
  const stopping = new AbortController();
  const delivery = createWebhookResultSink({ url: `${hooks.url}/stop`, secret: null }).put(
    result,
    key,
    stopping.signal,
  );
  await expect.poll(() => receivedAt("/stop").length).toBe(1);
  stopping.abort();
  await expect(delivery).rejects.toThrow(/abort/i);
});

const endings: readonly (readonly [string, (response: ServerResponse) => unknown])[] = [
  ["never ends its answer", (response) => response.writeHead(200).write("{")],
  ["answers with a body that never ends", (response) => Readable.from(zeros()).pipe(response)],
  ["answers with a compressed flood", (response) => response.writeHead(200, { "content-encoding": "gzip" }).end(bomb)],
];
test.for(endings)("a receiver that accepts the result and %s gets it once", async ([name, answer]) => {
  const path = `/accepts/${name.length}`;
  hooks.answer((_, response) => void answer(response));
  await open(path, 1_000).put(result, key, never);
  expect(receivedAt(path)).toHaveLength(1);
});

test.for([
  [400, true],
  [410, true],
  [413, true],
  [401, false],
  [404, false],
  [429, false],
  [500, false],
] as const)("status %i says that the receiver does not take this result: %s", async ([status, isRefusal]) => {
  hooks.answer(status);
  const error: unknown = await open(`/status/${status}`)
    .put(result, key, never)
    .catch((thrown: unknown) => thrown);
  expect(error instanceof ResultRefusedError).toBe(isRefusal);
});

test("an id that is the SHA-256 of another one does not pass for it", async () => {
  hooks.answer(204);
  const odd = "é";
  const copied = createHash("sha256").update(odd).digest("hex");
  for (const jobId of [odd, copied]) await open("/copies").put({ ...result, jobId }, key, never);
  expect(new Set(receivedAt("/copies").map(({ headers }) => headers["webhook-id"])).size).toBe(2);
  expect(resultKey("p", odd)).not.toBe(resultKey("p", copied));
});

test("jobs with ids that are no header values keep ids of their own", async () => {
  hooks.answer(204);
  const long = "é".repeat(120);
  for (const jobId of [`${long}-1`, `${long}-2`, "plain", ""]) await open("/ids").put({ ...result, jobId }, key, never);
  const ids = receivedAt("/ids").map(({ headers }) => headers["webhook-id"]);
  expect(ids[2]).toBe("plain");
  expect(new Set(ids).size).toBe(4);
});
