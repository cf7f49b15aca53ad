/** Jobs from NATS JetStream. */
import { randomUUID } from "node:crypto";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createNatsJobSource } from "../../../../functions/jobs/sources/nats-job-source.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { testJobSource } from "../../../contracts/job-source.ts";
import { startNatsServer } from "../../../support/servers/nats-server.ts";
import type { NatsServer } from "../../../support/servers/nats-server.ts";

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
    waitMs: 1000,
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

async function createConsumer(ackPolicy: AckPolicy, maxDeliver: number): Promise<string> {
  const stream = `jobs-${randomUUID()}`;
  const connection = await connect({ servers: nats.address });
  connections.push(() => connection.close());
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.consumers.add(stream, { durable_name: "workers", ack_policy: ackPolicy, max_deliver: maxDeliver });
  return stream;
}

test.for([
  [-1, /^$/],
  [6, /^$/],
  [5, /Set max_deliver to more than JOB_MAX_DELIVERIES, which is 5\./],
] as const)("a consumer with max_deliver %i gets the warning %s", async ([maxDeliver, warning]) => {
  lines.length = 0;
  const stream = await createConsumer(AckPolicy.Explicit, maxDeliver);
  await (await open(stream, null, 60_000)).close();
  expect(lines.join("")).toMatch(warning);
});

test("a consumer without acknowledgement is rejected", async () => {
  const stream = await createConsumer(AckPolicy.None, -1);
  await expect(open(stream, null, 60_000)).rejects.toThrow(/has ack_policy none; create it with explicit/);
});
