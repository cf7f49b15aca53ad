/** Queues of real servers, filled by their producers' own clients, as JOB_SOURCE takes them. */
import { randomUUID } from "node:crypto";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Queue } from "bullmq";
import { Connection } from "rabbitmq-client";

import type { NatsServer } from "../servers/nats-server.ts";
import type { PubSubServer } from "../servers/pubsub-server.ts";
import type { RabbitMqServer } from "../servers/rabbitmq-server.ts";
import type { RedisServer } from "../servers/redis-server.ts";
import { createPubSubQueue } from "./pubsub-queue.ts";
import { createSqsQueue } from "./sqs-queue.ts";

/** Calls at once to servers that answer them one by one. */
const numConcurrent = 20;

export interface FilledQueue extends AsyncDisposable {
  readonly address: string;
  readonly send: (bodies: readonly string[]) => Promise<void>;
  /** Jobs that are neither done nor among the dead letters; 0 where the queue does not tell. */
  readonly numUnfinished: () => Promise<number>;
  /** Bodies. */
  readonly deadLetters: () => Promise<readonly string[]>;
}

/** The queue exists once something has been sent. */
export async function createBullQueue({ url }: RedisServer, name = `jobs-${randomUUID()}`): Promise<FilledQueue> {
  const queue = new Queue(name, { connection: { url } });
  // Errors of calls reach their callers.
  queue.on("error", () => {});
  return {
    address: `${url}?queue=${name}`,
    async send(bodies) {
      await queue.addBulk(bodies.map((body) => ({ name: "job", data: JSON.parse(body) as unknown })));
    },
    async numUnfinished() {
      const { waiting = 0, active = 0, delayed = 0 } = await queue.getJobCounts("waiting", "active", "delayed");
      return waiting + active + delayed;
    },
    deadLetters: async () => (await queue.getFailed()).map(({ data }) => JSON.stringify(data)),
    [Symbol.asyncDispose]: () => queue.close(),
  };
}

export async function createNatsQueue({ address }: NatsServer, stream = `jobs-${randomUUID()}`): Promise<FilledQueue> {
  const connection = await connect({ servers: address, maxReconnectAttempts: -1 });
  const manager = await jetstreamManager(connection);
  const dead = `${stream}-dead`;
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.streams.add({ name: dead, subjects: [dead] });
  const client = jetstream(connection);
  return {
    address: `nats://${address}/${stream}/workers?dead=${dead}`,
    async send(bodies) {
      for (const body of bodies) await client.publish(stream, body);
    },
    async numUnfinished() {
      const { num_pending: numPending, num_ack_pending: numLeased } = await manager.consumers.info(stream, "workers");
      return numPending + numLeased;
    },
    async deadLetters() {
      const { state } = await manager.streams.info(dead);
      const numbers = Array.from({ length: state.messages }, (_, index) => state.first_seq + index);
      return Promise.all(numbers.map(async (seq) => (await manager.streams.getMessage(dead, { seq }))?.string() ?? ""));
    },
    [Symbol.asyncDispose]: () => connection.close(),
  };
}

export async function createRabbitQueue({ url }: RabbitMqServer, queue = `jobs-${randomUUID()}`): Promise<FilledQueue> {
  const connection = new Connection({ url, noDelay: true });
  connection.on("error", () => {});
  const dead = `${queue}-dead`;
  const toDead = { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead };
  await connection.queueDeclare({ queue, durable: true, arguments: { "x-queue-type": "quorum", ...toDead } });
  await connection.queueDeclare({ queue: dead, durable: true, arguments: { "x-queue-type": "quorum" } });
  return {
    address: `${url}?queue=${queue}`,
    async send(bodies) {
      const channel = await connection.acquire();
      await channel.confirmSelect();
      for (const body of bodies) {
        const envelope = { routingKey: queue, contentType: "application/json", durable: true, messageId: randomUUID() };
        await channel.basicPublish(envelope, Buffer.from(body));
      }
      await channel.close();
    },
    /** Of ready messages only: workers take their messages along until they end. */
    numUnfinished: async () => (await connection.queueDeclare({ queue, passive: true })).messageCount,
    async deadLetters() {
      const bodies: string[] = [];
      for (;;) {
        const message = await connection.basicGet({ queue: dead, noAck: true });
        if (message === undefined) return bodies;
        bodies.push(JSON.stringify(message.body));
      }
    },
    [Symbol.asyncDispose]: () => connection.close(),
  };
}

/** @param endpoint Of the server that the workers reach; `direct` is that of the producer. */
export async function createSqsJobs(
  { endpoint, direct = endpoint }: { readonly endpoint: string; readonly direct?: string },
  name = `jobs-${randomUUID()}`,
): Promise<FilledQueue> {
  const queue = await createSqsQueue(direct, name);
  return {
    address: queue.address.replace(new URL(direct).host, new URL(endpoint).host),
    async send(bodies) {
      for (let start = 0; start < bodies.length; start += numConcurrent) {
        await Promise.all(bodies.slice(start, start + numConcurrent).map((body) => queue.send(body)));
      }
    },
    async numUnfinished() {
      const { numVisible, numInFlight } = await queue.count();
      return numVisible + numInFlight;
    },
    deadLetters: queue.deadLetters,
    async [Symbol.asyncDispose]() {},
  };
}

export async function createPubSubJobs({ url }: PubSubServer, name = `jobs-${randomUUID()}`): Promise<FilledQueue> {
  const queue = await createPubSubQueue(url, name);
  return {
    address: queue.address,
    send: queue.send,
    numUnfinished: async () => 0,
    deadLetters: queue.deadLetters,
    async [Symbol.asyncDispose]() {},
  };
}
