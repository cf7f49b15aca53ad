/** Webhooks that do not take a result. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { answerResult } from "../../../functions/jobs/job-result.ts";
import { createWebhookResultSink } from "../../../functions/jobs/sinks/webhook-result-sink.ts";
import { startWebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import type { WebhookReceiver } from "../../support/servers/webhook-receiver.ts";

const never = new AbortController().signal;
const result = answerResult("job", "a", { statusCode: 200, requestId: "r", body: {} });

let hooks: WebhookReceiver;

beforeAll(async () => {
  hooks = await startWebhookReceiver();
});

afterAll(() => hooks[Symbol.asyncDispose]());

const open = (path: string) =>
  createWebhookResultSink({ url: `${hooks.url}${path}`, secret: null, retryMs: [1, 1, 1], attemptTimeoutMs: 300 });

const receivedAt = (path: string) => hooks.received.filter((webhook) => webhook.path === path);

test("a receiver that hangs twice gets the result with the third attempt", async () => {
  let numHung = 0;
  hooks.answer((_, response) => void (numHung++ < 2 || response.writeHead(204).end()));
  await open("/hang").put(result, never);
  expect(receivedAt("/hang")).toHaveLength(3);
  expect(new Set(receivedAt("/hang").map(({ headers }) => headers["webhook-id"]))).toEqual(new Set(["job"]));
});

test.for([
  ["answers with 500", 500, /answered with status 500/, 4],
  ["redirects to an address inside", 302, /answered with status 302/, 4],
  ["is gone", 410, /answered with status 410/, 1],
  ["always hangs", null, /abort|timeout/i, 4],
] as const)("a receiver that %s is given up with the reason", async ([, status, reason, numAttempts]) => {
  const path = `/${String(status)}`;
  hooks.answer((_, response) => {
    if (status !== null) response.writeHead(status, { location: `${hooks.url}/inside` }).end();
  });
  await expect(open(path).put(result, never)).rejects.toThrow(reason);
  expect(receivedAt(path)).toHaveLength(numAttempts);
  expect(receivedAt("/inside")).toEqual([]);
});

test("an abort ends the delivery to a receiver that hangs", async () => {
  hooks.answer(() => {});
  const stopping = new AbortController();
  const delivery = createWebhookResultSink({ url: `${hooks.url}/stop`, secret: null }).put(result, stopping.signal);
  await expect.poll(() => receivedAt("/stop").length).toBe(1);
  stopping.abort();
  await expect(delivery).rejects.toThrow(/abort/i);
});

test("jobs with ids that are no header values keep ids of their own", async () => {
  hooks.answer(204);
  const long = "é".repeat(120);
  for (const jobId of [`${long}-1`, `${long}-2`, "plain", ""]) await open("/ids").put({ ...result, jobId }, never);
  const ids = receivedAt("/ids").map(({ headers }) => headers["webhook-id"]);
  expect(ids[2]).toBe("plain");
  expect(new Set(ids).size).toBe(4);
});
