/**
 * Jobs from Pub/Sub. `PUBSUB_EMULATOR_HOST=host:port` runs the contract suite against Google's emulator instead of the
 * server of the tests.
 */
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";

import { refusalResult } from "../../../../functions/jobs/job-result.ts";
import { createPubSubJobSource } from "../../../../functions/jobs/sources/pubsub-job-source.ts";
import type { PubSubJobSourceOptions } from "../../../../functions/jobs/sources/pubsub-job-source.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { createPubSubQueue } from "../../../support/queues/pubsub-queue.ts";
import { startPubSubServer } from "../../../support/servers/pubsub-server.ts";
import type { PubSubServer } from "../../../support/servers/pubsub-server.ts";

const never = new AbortController().signal;
const emulator = process.env.PUBSUB_EMULATOR_HOST;
const answer = (jobId: string) => ({ jobId, isSuccess: true, text: "{}" });

let server: PubSubServer;

beforeAll(async () => {
  server = await startPubSubServer();
});

afterEach(() => {
  if (server.violations.length > 0) throw new Error(`Calls break the contract: ${server.violations.join("\n")}`);
});

afterAll(() => server[Symbol.asyncDispose]());

function open(
  url: string,
  options: Pick<PubSubJobSourceOptions, "project" | "subscription"> & { readonly leaseMs?: number },
  lines: string[] = [],
) {
  const logger = createLogger({ level: "warn", write: (line) => void lines.push(line) });
  return createPubSubJobSource({
    emulatorUrl: url,
    leaseMs: LEASE_MS,
    maxNumDeliveries: 5,
    logger,
    waitMs: 1500,
    ...options,
  });
}

testJobSource("Pub/Sub", async () => {
  const url = emulator === undefined ? server.url : `http://${emulator}`;
  const queue = await createPubSubQueue(url, `jobs-${randomUUID()}`);
  return {
    open: (leaseMs) => open(url, { ...queue, leaseMs }),
    send: (body, trace) => queue.send([body], trace),
    deadLetters: queue.deadLetters,
  };
});

describe("Pub/Sub", () => {
  test.for([
    [null, /Pub\/Sub does not count deliveries/],
    [5, /Set maxDeliveryAttempts to more than JOB_MAX_DELIVERIES, which is 5\./],
    [6, /^$/],
  ] as const)(
    "a subscription with maxDeliveryAttempts %s gets the warning %s",
    async ([maxDeliveryAttempts, warning]) => {
      const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`, { maxDeliveryAttempts });
      const lines: string[] = [];
      await (await open(server.url, queue, lines)).close();
      expect(lines.join("")).toMatch(warning);
    },
  );

  test("a subscription that may not be read still hands out jobs, and one that does not exist is an error", async () => {
    const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`);
    server.fail(queue.subscription, 403);
    const lines: string[] = [];
    const source = await open(server.url, queue, lines);
    expect(lines.join()).toContain("Grant pubsub.subscriptions.get");
    await queue.send(["{}"]);
    const [job] = await source.take(1, never);
    await job!.complete(answer(job!.id));
    await source.close();
    await expect(open(server.url, { ...queue, subscription: "missing" })).rejects.toThrow(/NOT_FOUND/);
  });

  test("without a dead-letter topic a rejected job is removed", async () => {
    const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`, { maxDeliveryAttempts: null });
    const source = await open(server.url, queue);
    await queue.send(["no job"]);
    const [job] = await source.take(1, never);
    expect([String(job!.body), job!.numDeliveries]).toEqual(["no job", 1]);
    await job!.reject(refusalResult(job!.id, null, { code: "invalid_json", message: "é".repeat(2000) }));
    expect(await source.take(1, never)).toEqual([]);
    await source.close();
  });

  test("a rejected message that has no room for its result goes to the dead letters without", async () => {
    const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`);
    const source = await open(server.url, queue);
    await queue.send(["no job"]);
    const [job] = await source.take(1, never);
    server.fail(":publish", 400);
    await job!.reject(refusalResult(job!.id, null, { code: "invalid_json", message: "It is no job." }));
    expect(await queue.deadLetters()).toEqual(["no job"]);
    await source.close();
  });

  test("calls are repeated after an error of the server", async () => {
    const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`);
    const source = await open(server.url, queue);
    await queue.send(["{}"]);
    const [job] = await source.take(1, never);
    server.fail(":modifyAckDeadline", 503);
    await job!.renew();
    server.fail(":acknowledge", 500, 503);
    await job!.complete(answer(job!.id));
    expect(server.numFailures()).toBe(0);
    expect(await source.take(1, never)).toEqual([]);
    await source.close();
  });

  test("a token that expires in the middle of a job is replaced", async () => {
    const metadata = await startMetadataServer();
    const queue = await createPubSubQueue(server.url, `jobs-${randomUUID()}`);
    await queue.send(["{}"]);
    server.token = metadata.token();
    onTestFinished(() => void (server.token = null));
    const source = await createPubSubJobSource({
      ...queue,
      url: server.url,
      emulatorUrl: null,
      leaseMs: LEASE_MS,
      maxNumDeliveries: 5,
      waitMs: 1500,
      logger: createLogger({ level: "error", write: () => {} }),
    });
    const [job] = await source.take(1, never);
    server.token = metadata.rotate();
    await job!.renew();
    server.token = metadata.rotate();
    await job!.complete(answer(job!.id));
    expect(await source.take(1, never)).toEqual([]);
    await source.close();
  });
});

/** The part of Compute Engine's metadata server that gives tokens of the default service account. */
async function startMetadataServer(): Promise<{ readonly token: () => string; readonly rotate: () => string }> {
  let token = randomUUID();
  const metadata = createServer((request, response) => {
    const headers = { "metadata-flavor": "Google", "content-type": "application/json" };
    const isToken = request.url?.includes("/service-accounts/default/token") === true;
    const body = isToken ? { access_token: token, expires_in: 3600, token_type: "Bearer" } : {};
    response.writeHead(200, headers).end(JSON.stringify(body));
  });
  const listening = Promise.withResolvers<void>();
  metadata.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const environment = { GCE_METADATA_HOST: `127.0.0.1:${(metadata.address() as AddressInfo).port}` };
  Object.assign(process.env, environment, { METADATA_SERVER_DETECTION: "assume-present" });
  onTestFinished(() => {
    metadata.closeAllConnections();
    metadata.close();
  });
  return { token: () => token, rotate: () => (token = randomUUID()) };
}
