/** Jobs from RabbitMQ. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Connection } from "rabbitmq-client";
import type { SyncMessage } from "rabbitmq-client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { LeaseLostError } from "../../../../functions/jobs/job-source.ts";
import type { LeasedJob } from "../../../../functions/jobs/job-source.ts";
import { createAmqpJobSource } from "../../../../functions/jobs/sources/amqp-job-source.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { testJobSource } from "../../../contracts/job-source.ts";
import { createRabbitQueue } from "../../../support/queues/job-queues.ts";
import { startRabbitMqServer } from "../../../support/servers/rabbitmq-server.ts";
import type { RabbitMqServer } from "../../../support/servers/rabbitmq-server.ts";
import { startService } from "../../../support/service/running-service.ts";

const lines: string[] = [];
const logger = createLogger({ level: "warn", write: (line) => void lines.push(line) });

let rabbit: RabbitMqServer;
const connections: (() => Promise<void>)[] = [];

beforeAll(async () => {
  rabbit = await startRabbitMqServer();
});

afterAll(async () => {
  for (const close of connections) await close();
  await rabbit[Symbol.asyncDispose]();
});

testJobSource(
  "RabbitMQ",
  async () => {
    const queue = `jobs-${randomUUID()}`;
    const dead = `${queue}-dead`;
    const connection = new Connection(rabbit.url);
    connections.push(() => connection.close());
    const toDead = { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead };
    await connection.queueDeclare({ queue, durable: true, arguments: { "x-queue-type": "quorum", ...toDead } });
    await connection.queueDeclare({ queue: dead, durable: true });
    const channel = await connection.acquire();
    await channel.confirmSelect();
    connections.unshift(() => channel.close());
    return {
      open: async () => createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 500 }),
      async send(body, headers = { traceparent: "" }) {
        const envelope = { routingKey: queue, contentType: "application/json", headers: { ...headers } };
        await channel.basicPublish(envelope, Buffer.from(body));
      },
      async deadLetters() {
        const bodies: string[] = [];
        for (;;) {
          const message = await channel.basicGet({ queue: dead, noAck: true });
          if (message === undefined) return bodies;
          bodies.push(JSON.stringify(message.body));
        }
      },
    };
  },
  // Messages belong to the connection of a worker.
  { expiresWith: "worker" },
);

const never = new AbortController().signal;

describe("RabbitMQ", () => {
  test("an idle worker is a consumer of the queue, and a worker without room leaves messages there", async () => {
    const queue = `jobs-${randomUUID()}`;
    await using filled = await createRabbitQueue(rabbit, queue);
    const connection = new Connection(rabbit.url);
    const numConsumers = async () => (await connection.queueDeclare({ queue, passive: true })).consumerCount;
    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 600_000 });
    const taking = source.take(4, never);
    await expect.poll(numConsumers).toBe(1);
    await filled.send(["first", "second", "third"].map((prompt) => JSON.stringify({ prompt })));
    const jobs = [...(await taking)];
    while (jobs.length < 3) jobs.push(...(await source.take(4, never)));
    await filled.send([JSON.stringify({ prompt: "fourth" })]);
    expect(await filled.numUnfinished()).toBe(1);
    expect(jobs.map(({ body, numDeliveries }) => [JSON.parse(String(body)), numDeliveries])).toEqual([
      [{ prompt: "first" }, 1],
      [{ prompt: "second" }, 1],
      [{ prompt: "third" }, 1],
    ]);
    for (const job of jobs) await job.release(0);
    await source.close();
    await connection.close();
  });

  test.for(["application/json", "text/plain", undefined])(
    "a body of the type %s is handed out byte by byte",
    async (contentType) => {
      const queue = `jobs-${randomUUID()}`;
      await using _ = await createRabbitQueue(rabbit, queue);
      const connection = new Connection(rabbit.url);
      const sent = [
        Buffer.from(' {"seed": 12345678901234567890, "seed": 1e400, "a": "\\u0000é"}\n'),
        Buffer.from([0x22, 0xff, 0xfe, 0x22]),
        Buffer.alloc(0),
      ];
      const channel = await connection.acquire();
      for (const body of sent) {
        // A message without an id takes another way.
        for (const messageId of [randomUUID(), undefined]) {
          const envelope = {
            routingKey: queue,
            type: "job",
            ...(messageId && { messageId }),
            ...(contentType && { contentType }),
          };
          await channel.basicPublish(envelope, body);
        }
      }
      const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 500 });
      const taken: LeasedJob[] = [];
      await expect.poll(async () => taken.push(...(await source.take(6, never)))).toBe(6);
      const inHex = (bodies: readonly (string | Buffer)[]) =>
        bodies.map((body) => Buffer.from(body).toString("hex")).toSorted();
      expect(inHex(taken.map(({ body }) => body))).toEqual(inHex([...sent, ...sent]));
      for (const job of taken) await job.release(0);
      await channel.close();
      await source.close();
      await connection.close();
    },
  );

  test("a job whose result cannot be published is handed out again, and the worker takes other jobs", async () => {
    const queue = `jobs-${randomUUID()}`;
    await using filled = await createRabbitQueue(rabbit, queue);
    const connection = new Connection(rabbit.url);
    const full = { "x-max-length": 0, "x-overflow": "reject-publish" } as const;
    await connection.queueDeclare({ queue: `${queue}-replies`, durable: true, arguments: full });
    const publisher = connection.createPublisher({ confirm: true });
    const envelope = { routingKey: queue, contentType: "application/json", messageId: "a", durable: true };
    await publisher.send({ ...envelope, replyTo: `${queue}-replies` }, JSON.stringify({ n: 0 }));
    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 600_000, replyRetryMs: 1 });
    const result = { jobId: "a", isSuccess: true, text: "{}" };
    for (let delivery = 1; delivery <= 2; delivery++) {
      const [job] = await source.take(1, never);
      expect(job).toMatchObject({ id: "a", numDeliveries: delivery });
      await expect(delivery === 1 ? job!.complete(result) : job!.reject(result)).rejects.toThrow(/rejected by server/);
    }
    await connection.queueDelete(`${queue}-replies`);
    const [job] = await source.take(1, never);
    // The sender no longer waits.
    await job!.complete(result);
    expect(await filled.numUnfinished()).toBe(0);
    await source.close();
    await publisher.close();
    await connection.close();
  });

  test("a sender gets the result at its reply_to, with its correlation_id", async () => {
    const queue = `jobs-${randomUUID()}`;
    await using filled = await createRabbitQueue(rabbit, queue);
    const connection = new Connection(rabbit.url);
    const replies = await connection.queueDeclare({ exclusive: true });
    const publisher = connection.createPublisher({ confirm: true });
    const envelope = { routingKey: queue, contentType: "application/json", durable: true, replyTo: replies.queue };
    const short = { prompt: "a red", max_tokens: 3, temperature: 0 };
    const messages = {
      good: JSON.stringify({ custom_id: "mine", body: short }),
      wrong: JSON.stringify({ ...short, temperature: -1 }),
      "no job": "[]",
      // JSON.stringify cannot write the object that the client has read.
      deep: `{"prompt": ${"[".repeat(50_000)}${"]".repeat(50_000)}}`,
    };
    for (const [correlationId, body] of Object.entries(messages)) {
      await publisher.send({ ...envelope, messageId: `id of ${correlationId}`, correlationId }, Buffer.from(body));
    }
    await using _ = await startService({ JOB_SOURCE: filled.address, BATCH_STORE: "none" });
    const received = new Map<string | undefined, SyncMessage>();
    await expect
      .poll(
        async () => {
          const message = await connection.basicGet({ queue: replies.queue, noAck: true });
          if (message !== undefined) received.set(message.correlationId, message);
          return received.size;
        },
        { timeout: 60_000, interval: 20 },
      )
      .toBe(4);
    for (const [correlationId, { messageId }] of received) expect(messageId).toBe(`id of ${correlationId}`);
    expect(received.get("good")?.body).toMatchObject({
      custom_id: "mine",
      response: { status_code: 200 },
      error: null,
    });
    expect(received.get("wrong")?.body).toMatchObject({ response: { status_code: 400 } });
    expect(received.get("no job")?.body).toMatchObject({ response: null, error: { code: "invalid_json" } });
    expect(received.get("deep")?.body).toMatchObject({ error: { message: expect.stringMatching(/levels/) as string } });
    const numDead = async () => (await connection.queueDeclare({ queue: `${queue}-dead`, passive: true })).messageCount;
    await expect.poll(numDead).toBe(2);
    expect(await filled.numUnfinished()).toBe(0);

    // RabbitMQ's own addresses for replies, without a queue.
    const client = connection.createRPCClient({ confirm: true });
    const { body } = await client.send(
      { routingKey: queue, contentType: "application/json" },
      Buffer.from(messages.good),
    );
    expect(body).toMatchObject({ custom_id: "mine", response: { status_code: 200 } });
    await client.close();
    await publisher.close();
    await connection.close();
  });

  test.for(["quorum", "classic"] as const)("a %s queue is warned of once if it counts no deliveries", async (type) => {
    lines.length = 0;
    const queue = `jobs-${randomUUID()}`;
    const connection = new Connection(rabbit.url);
    await connection.queueDeclare({ queue, durable: true, arguments: { "x-queue-type": type } });
    const publisher = connection.createPublisher({ confirm: true });
    await publisher.send({ routingKey: queue, messageId: "a", durable: true }, Buffer.from("{}"));
    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 600_000 });
    for (let delivery = 1; delivery <= 4; delivery++) {
      const [job] = await source.take(1, never);
      await job!.release(0);
    }
    expect(lines.filter((line) => line.includes("Use a quorum queue"))).toHaveLength(type === "quorum" ? 0 : 1);
    await source.close();
    await publisher.close();
    await connection.close();
  });

  test("a job that takes longer than RabbitMQ waits is handed out again, and takes no other job with it", async () => {
    lines.length = 0;
    const timeoutMs = 2_000;
    await using impatient = await startRabbitMqServer({ consumerTimeoutMs: timeoutMs });
    await using filled = await createRabbitQueue(impatient, "jobs");
    await filled.send([JSON.stringify({ prompt: "slow" })]);
    const source = createAmqpJobSource({ logger, url: impatient.url, queue: "jobs", waitMs: 600_000 });
    const [slow] = await source.take(1, never);
    let numOthers = 0;
    let numLeft = 0;
    while (!slow!.lost.aborted) {
      await filled.send([JSON.stringify({ prompt: "quick" })]);
      numLeft++;
      const takenMs = performance.now();
      const [quick] = await source.take(1, never);
      if (quick!.id === slow!.id) break;
      await sleep(timeoutMs / 20);
      const isLost = quick!.lost.aborted;
      // A machine that is too busy to be quick shows nothing.
      if (isLost && performance.now() - takenMs > timeoutMs / 2) continue;
      expect(isLost).toBe(false);
      await quick!.complete({ jobId: quick!.id, isSuccess: true, text: "{}" });
      numOthers++;
      numLeft--;
    }
    expect(numOthers).toBeGreaterThan(0);
    const result = { jobId: slow!.id, isSuccess: true, text: "{}" };
    await expect(slow!.renew()).rejects.toThrow(LeaseLostError);
    await expect(slow!.complete(result)).rejects.toThrow(LeaseLostError);
    expect(lines.join("")).toContain(`"jobId":"${slow!.id}","remedy":"Set RabbitMQ's consumer_timeout`);
    await source.close();

    const other = createAmqpJobSource({ logger, url: impatient.url, queue: "jobs", waitMs: 600_000 });
    const numDeliveries = new Map<string, number>();
    // The slow one, and quick ones that it was handed out before or that were lost.
    while (numDeliveries.size < 1 + numLeft) {
      const [again] = await other.take(1, never);
      numDeliveries.set(again!.id, again!.numDeliveries);
      await again!.complete({ ...result, jobId: again!.id });
    }
    expect(numDeliveries.get(slow!.id)).toBeGreaterThan(1);
    await expect.poll(filled.numUnfinished).toBe(0);
    await other.close();
  });

  test("messages that arrive while a worker waits again and again have their first delivery", async () => {
    const queue = `jobs-${randomUUID()}`;
    await using filled = await createRabbitQueue(rabbit, queue);
    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 1 });
    const numDeliveries: number[] = [];
    const numJobs = 100;
    const taking = (async () => {
      while (numDeliveries.length < numJobs) {
        for (const job of await source.take(1, never)) {
          numDeliveries.push(job.numDeliveries);
          await job.complete({ jobId: job.id, isSuccess: true, text: "{}" });
        }
      }
    })();
    for (let n = 0; n < numJobs; n++) {
      await filled.send([JSON.stringify({ n })]);
      await sleep(n % 5);
    }
    await taking;
    expect(numDeliveries).toEqual(Array.from({ length: numJobs }, () => 1));
    await source.close();
  });

  test("a worker that has no more room leaves a message that arrives to others", async () => {
    const queue = `jobs-${randomUUID()}`;
    await using filled = await createRabbitQueue(rabbit, queue);
    const full = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 1 });
    expect(await full.take(1, never)).toEqual([]);
    const other = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 600_000 });
    await filled.send([JSON.stringify({ n: 0 })]);
    const [job] = await other.take(1, never);
    await job!.complete({ jobId: job!.id, isSuccess: true, text: "{}" });
    await full.close();
    await other.close();
  });

  test.for([
    [{ "x-acquired-count": 2 }, 3],
    [{ "x-acquired-count": 4, "x-delivery-count": 1 }, 5],
    [{ "x-acquired-count": "many" }, 1],
  ] as const)("a message with %o, as RabbitMQ 4.3 sends it, has delivery %i", async ([headers, delivery]) => {
    const queue = `jobs-${randomUUID()}`;
    await using _ = await createRabbitQueue(rabbit, queue);
    const connection = new Connection(rabbit.url);
    const publisher = connection.createPublisher({ confirm: true });
    await publisher.send({ routingKey: queue, messageId: "a", durable: true, headers }, Buffer.from("{}"));
    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 600_000 });
    const [job] = await source.take(1, never);
    expect(job!.numDeliveries).toBe(delivery);
    await source.close();
    await publisher.close();
    await connection.close();
  });

  test.for([
    ["exchange of its own", "ask", 2, /^$/],
    ["refused exchange", "jobs", 1, /lose their routing keys.*or give each message a message_id/],
  ] as const)("a message without an id, put back through an %s, is rejected with the key %s", async (row) => {
    const [exchange, deadKey, numKeys, warning] = row;
    lines.length = 0;
    const name = (part: string) => `${queue}-${part}`;
    const queue = `jobs-${randomUUID()}`;
    const connection = new Connection(rabbit.url);
    const channel = await connection.acquire();
    await channel.confirmSelect();
    for (const part of ["tasks", "dead"]) await channel.exchangeDeclare({ exchange: name(part), type: "direct" });
    const toDead = { "x-dead-letter-exchange": name("dead") };
    await channel.queueDeclare({ queue, durable: true, arguments: { "x-queue-type": "quorum", ...toDead } });
    await channel.queueBind({ queue, exchange: name("tasks"), routingKey: name("ask") });
    // The default exchange knows the queue of the copies by the key in the message's CC header.
    for (const part of ["copies", "dead"]) await channel.queueDeclare({ queue: name(part), exclusive: true });
    await channel.queueBind({ queue: name("copies"), exchange: name("tasks"), routingKey: name("copies") });
    for (const key of [name("ask"), queue]) {
      await channel.queueBind({ queue: name("dead"), exchange: name("dead"), routingKey: key });
    }
    if (exchange === "refused exchange") {
      await channel.exchangeDeclare({ exchange: `fovea-jobs.${queue}`, type: "direct", autoDelete: true });
    }
    const headers = { CC: [name("copies")] };
    await channel.basicPublish({ exchange: name("tasks"), routingKey: name("ask"), headers }, Buffer.from("{}"));

    const source = createAmqpJobSource({ logger, url: rabbit.url, queue, waitMs: 500 });
    const jobs: LeasedJob[] = [];
    await expect.poll(async () => jobs.push(...(await source.take(1, never).catch(() => [])))).toBe(1);
    await jobs[0]!.reject({ jobId: jobs[0]!.id, isSuccess: false, text: "{}" });
    let dead: SyncMessage | undefined;
    await expect.poll(async () => (dead = await channel.basicGet({ queue: name("dead"), noAck: true }))).toBeDefined();
    expect(dead).toMatchObject({ messageId: jobs[0]!.id, routingKey: deadKey === "ask" ? name("ask") : queue });
    const keys = (dead!.headers!["x-death"] as { "routing-keys": string[] }[])[0]!["routing-keys"];
    expect(keys).toHaveLength(numKeys);
    expect((await channel.queueDeclare({ queue: name("copies"), passive: true })).messageCount).toBe(1);
    expect(lines.join("")).toMatch(warning);
    await source.close();
    await channel.close();
    await connection.close();
  });

  test("a worker stops while the server does not answer", async () => {
    const silent = createServer((socket) => socket.on("error", () => {}));
    const listening = Promise.withResolvers<void>();
    silent.listen(0, "127.0.0.1", listening.resolve);
    await listening.promise;
    const { port } = silent.address() as AddressInfo;
    const source = createAmqpJobSource({ logger, url: `amqp://127.0.0.1:${port}`, queue: "jobs" });
    const stopping = new AbortController();
    const connected = once(silent, "connection");
    const taking = source.take(1, stopping.signal);
    await connected;
    stopping.abort();
    expect(await taking).toEqual([]);
    await source.close();
    const closed = once(silent, "close");
    silent.close();
    await closed;
  });
});
