/** Jobs from NATS JetStream. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { ConsumerConfig } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";

import { refusalResult } from "../../../../functions/jobs/job-result.ts";
import type { LeasedJob } from "../../../../functions/jobs/job-source.ts";
import { createNatsJobSource } from "../../../../functions/jobs/sources/nats-job-source.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { testJobSource } from "../../../contracts/job-source.ts";
import { startNatsServer } from "../../../support/servers/nats-server.ts";
import type { NatsServer } from "../../../support/servers/nats-server.ts";
import { startTcpProxy } from "../../../support/servers/tcp-proxy.ts";

const never = new AbortController().signal;
const lines: string[] = [];
const logger = createLogger({ level: "warn", write: (line) => void lines.push(line) });

let nats: NatsServer;
const connections: (() => Promise<void>)[] = [];

beforeAll(async () => {
  nats = await startNatsServer();
});

afterAll(async () => {
  for (const close of connections) await close();
  await nats[Symbol.asyncDispose]();
});

const open = (stream: string, deadLetterSubject: string | null, leaseMs: number) =>
  createNatsJobSource({
    server: nats.address,
    user: null,
    tls: false,
    stream,
    consumer: "workers",
    deadLetterSubject,
    leaseMs,
    maxNumDeliveries: 5,
    logger,
  });

testJobSource("NATS JetStream", async () => {
  const stream = `jobs-${randomUUID()}`;
  const dead = `${stream}-dead`;
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.streams.add({ name: dead, subjects: [dead] });
  const client = jetstream(connection);
  return {
    open: (leaseMs) => open(stream, dead, leaseMs),
    async send(body, trace = { traceparent: "" }) {
      const given = headers();
      for (const [name, value] of Object.entries(trace)) given.set(name, value);
      await client.publish(stream, body, { headers: given });
    },
    async deadLetters() {
      const { state } = await manager.streams.info(dead);
      const numbers = Array.from({ length: state.messages }, (_, index) => state.first_seq + index);
      return Promise.all(numbers.map(async (seq) => (await manager.streams.getMessage(dead, { seq }))?.string() ?? ""));
    },
  };
});

async function createConsumer(config: Partial<ConsumerConfig>): Promise<string> {
  const stream = `jobs-${randomUUID()}`;
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.consumers.add(stream, { durable_name: "workers", ack_policy: AckPolicy.Explicit, ...config });
  return stream;
}

test.for([
  [-1, /^$/],
  [6, /^$/],
  [5, /Set max_deliver to more than JOB_MAX_DELIVERIES, which is 5\./],
] as const)("a consumer with max_deliver %i gets the warning %s", async ([maxDeliver, warning]) => {
  lines.length = 0;
  const stream = await createConsumer({ max_deliver: maxDeliver });
  await (await open(stream, null, 60_000)).close();
  expect(lines.join("")).toMatch(warning);
});

test.for<[Partial<ConsumerConfig>, RegExp]>([
  [{ ack_policy: AckPolicy.None }, /has ack_policy none; create it with explicit/],
  [{ deliver_subject: "elsewhere" }, /has a deliver_subject; create it without one/],
  [{ headers_only: true }, /has headers_only; create it without that/],
  [{ max_expires: 500_000_000 }, /has a max_expires of 500 ms; create it with at least 1000 ms, or without one/],
])("a consumer with %o is rejected", async ([config, reason]) => {
  const stream = await createConsumer(config);
  await expect(open(stream, null, 60_000)).rejects.toThrow(reason);
});

test("a consumer whose calls may wait for a second only hands out its jobs", async () => {
  const stream = await createConsumer({ max_expires: 1_000_000_000 });
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const source = await open(stream, null, 60_000);
  expect(await source.take(1, never)).toEqual([]);
  await jetstream(connection).publish(stream, "job");
  const [job] = await source.take(1, never);
  expect(String(job?.body)).toBe("job");
  await job!.complete(refusalResult(job!.id, null, { code: "invalid_json", message: "It is no job." }));
  await source.close();
});

test("a rejected message of the maximum length goes to the dead letters, without its result", async () => {
  const [stream, dead] = [`jobs-${randomUUID()}`, `dead-${randomUUID()}`];
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.streams.add({ name: dead, subjects: [dead] });
  const source = await open(stream, dead, 60_000);
  await jetstream(connection).publish(stream, new Uint8Array(connection.info!.max_payload).fill(0xff));
  const [job] = await source.take(1, never);
  await job!.reject(refusalResult(job!.id, null, { code: "invalid_json", message: "It is no job." }));
  expect((await manager.streams.info(dead)).state.messages).toBe(1);
  expect((await manager.consumers.info(stream, "workers")).num_ack_pending).toBe(0);
  await source.close();
});

test("messages with equal ids, of two streams and of one that is created again, are dead letters each", async () => {
  const dead = `dead-${randomUUID()}`;
  const [first, second] = [`jobs-${randomUUID()}`, `jobs-${randomUUID()}`];
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: dead, subjects: [dead] });
  for (const stream of [first, second, first]) {
    await manager.streams.add({ name: stream, subjects: [stream] });
    await jetstream(connection).publish(stream, "[]", { msgID: "given" });
    const source = await open(stream, dead, 60_000);
    const [job] = await source.take(1, never);
    expect(job!.id).toBe("given");
    await job!.reject(refusalResult("given", null, { code: "invalid_json", message: "It is no job." }));
    await source.close();
    await manager.streams.delete(stream);
  }
  expect((await manager.streams.info(dead)).state.messages).toBe(3);
});

test.for([
  [["jobs.>"], undefined, "jobs.dead", true],
  [["jobs.*", "others"], undefined, "jobs.dead", true],
  [["jobs.>"], "jobs.*.*", "jobs.a.dead", true],
  [["jobs.>"], "jobs.*.>", "jobs.a.b.dead", true],
  [["jobs.>"], "jobs.dead.>", "jobs.dead", false],
  [["jobs.>"], "jobs.*", "jobs.a.dead", false],
  [["jobs.>"], "jobs.a", "jobs.dead", false],
  [["jobs.*"], undefined, "jobs.a.dead", false],
] as const)("jobs of %j with the filter %s and dead letters at %s are refused: %s", async (row) => {
  const [subjects, filter, subject, isRefused] = row;
  const stream = `jobs-${randomUUID()}`;
  const own = (name: string) => `${stream}-${name}`;
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: subjects.map(own) });
  await manager.consumers.add(stream, {
    durable_name: "workers",
    ack_policy: AckPolicy.Explicit,
    ...(filter && { filter_subject: own(filter) }),
  });
  const refusal = await open(stream, own(subject), 60_000).then(
    (source) => source.close(),
    (error: unknown) => String(error),
  );
  const reason = expect.stringContaining("would hand them out as jobs: choose a subject of another stream") as string;
  expect(refusal).toEqual(isRefused ? reason : undefined);
});

test("dead letters that no stream keeps are warned of, and go to a stream that is created later", async () => {
  lines.length = 0;
  const [stream, dead] = [`jobs-${randomUUID()}`, `dead-${randomUUID()}`];
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await jetstream(connection).publish(stream, "[]");
  const source = await open(stream, dead, 60_000);
  expect(lines.join("")).toContain(`No stream has the subject ${dead}, which JOB_SOURCE names in dead=: create one`);
  const [job] = await source.take(1, never);
  const result = refusalResult(job!.id, null, { code: "invalid_json", message: "It is no job." });
  await expect(job!.reject(result)).rejects.toThrow(`No stream has the subject ${dead}`);
  await manager.streams.add({ name: dead, subjects: [dead] });
  await job!.reject(result);
  expect((await manager.streams.info(dead)).state.messages).toBe(1);
  await source.close();
});

test("numbers of messages that start again come with other times, and ids of senders without", async () => {
  const stream = `jobs-${randomUUID()}`;
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  const client = jetstream(connection);
  const keys: (readonly [id: string, addedAt: string | undefined])[] = [];
  for (const options of [{}, {}, { msgID: "given" }]) {
    await manager.streams.add({ name: stream, subjects: [stream] });
    await client.publish(stream, "{}", options);
    const source = await open(stream, null, 60_000);
    const [job] = await source.take(1, never);
    keys.push([job!.id, job!.addedAt]);
    await source.close();
    await manager.streams.delete(stream);
  }
  expect(keys.map(([id]) => id)).toEqual([`${stream}-1`, `${stream}-1`, "given"]);
  expect(new Set(keys.map(([, addedAt]) => addedAt)).size).toBe(3);
  expect(keys[2]![1]).toBe(undefined);
});

test("a server that stalls for longer than a call waits has no job, and then hands jobs out", async () => {
  const stream = await createConsumer({});
  const source = await open(stream, null, 60_000);
  const taken = source.take(1, never);
  nats.pause();
  // The client gives up after two seconds, and asks whether there still is a consumer.
  await sleep(3_000);
  nats.resume();
  expect(await taken).toEqual([]);
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  await jetstream(connection).publish(stream, "{}");
  const [job] = await source.take(1, never);
  await job!.release(0);
  await source.close();
});

test("a stream that is deleted and created again hands out its jobs", async () => {
  const stream = await createConsumer({});
  const source = await open(stream, null, 60_000);
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.delete(stream);
  await expect(source.take(1, never)).rejects.toThrow(/missed|not found|no responders/i);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await jetstream(connection).publish(stream, "{}");
  const jobs: LeasedJob[] = [];
  await expect.poll(async () => jobs.push(...(await source.take(1, never).catch(() => [])))).toBe(1);
  await jobs[0]!.release(0);
  await source.close();
});

test("a worker whose credentials were rejected for a while takes jobs again", { timeout: 120_000 }, async () => {
  const right = ["--user", "jobs", "--pass", "right"];
  await using server = await startNatsServer(right);
  await using proxy = await startTcpProxy(Number(server.address.split(":")[1]));
  const stream = `jobs-${randomUUID()}`;
  const send = async (): Promise<void> => {
    const connection = await connect({ servers: server.address, user: "jobs", pass: "right" });
    const manager = await jetstreamManager(connection);
    await manager.streams.info(stream).catch(() => manager.streams.add({ name: stream, subjects: [stream] }));
    await jetstream(connection).publish(stream, "{}");
    await connection.close();
  };
  await send();
  const source = await createNatsJobSource({
    server: `127.0.0.1:${proxy.port}`,
    user: { name: "jobs", password: "right" },
    tls: false,
    stream,
    consumer: "workers",
    deadLetterSubject: null,
    leaseMs: 60_000,
    maxNumDeliveries: 5,
    logger,
  });
  const take = async (): Promise<number> => {
    const jobs = await source.take(1, never).catch(() => []);
    for (const job of jobs) await job.complete(refusalResult(job.id, null, { code: "done", message: "Done." }));
    return jobs.length;
  };
  await expect.poll(take).toBe(1);

  await server.restart(["--user", "jobs", "--pass", "wrong"]);
  const { numConnections } = proxy;
  // The client gives up after the second rejection, unless it is told otherwise.
  await expect.poll(() => proxy.numConnections, { timeout: 60_000 }).toBeGreaterThan(numConnections + 2);
  await server.restart(right);
  await send();
  await expect.poll(take, { timeout: 60_000 }).toBe(1);
  await source.close();
});
