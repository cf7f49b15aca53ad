/** Jobs from RabbitMQ. */
import { randomUUID } from "node:crypto";
import { Connection } from "rabbitmq-client";
import { afterAll, beforeAll } from "vitest";

import { createAmqpJobSource } from "../../../../functions/jobs/sources/amqp-job-source.ts";
import { testJobSource } from "../../../contracts/job-source.ts";
import { startRabbitMqServer } from "../../../support/rabbitmq-server.ts";
import type { RabbitMqServer } from "../../../support/rabbitmq-server.ts";

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
      open: async () => createAmqpJobSource({ url: rabbit.url, queue, waitMs: 1000 }),
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
