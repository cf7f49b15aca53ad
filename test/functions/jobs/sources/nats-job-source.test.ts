/** Jobs from NATS JetStream. */
import { randomUUID } from "node:crypto";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll } from "vitest";

import { createNatsJobSource } from "../../../../functions/jobs/sources/nats-job-source.ts";
import { testJobSource } from "../../../contracts/job-source.ts";
import { startNatsServer } from "../../../support/servers/nats-server.ts";
import type { NatsServer } from "../../../support/servers/nats-server.ts";

let nats: NatsServer;
const connections: (() => Promise<void>)[] = [];

beforeAll(async () => {
  nats = await startNatsServer();
});

afterAll(async () => {
  for (const close of connections) await close();
  await nats[Symbol.asyncDispose]();
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
    open: (leaseMs) =>
      createNatsJobSource({
        server: nats.address,
        user: null,
        tls: false,
        stream,
        consumer: "workers",
        deadLetterSubject: dead,
        leaseMs,
        waitMs: 1000,
      }),
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
