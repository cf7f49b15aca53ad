/** Jobs from a queue of RabbitMQ (AMQP 0.9.1). Only this file imports the client of RabbitMQ. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Connection } from "rabbitmq-client";
import type { Channel, SyncMessage } from "rabbitmq-client";

import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";

/** How often an empty queue is asked again. */
const POLL_MS = 100;
const WAIT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 10_000;

export interface AmqpJobSourceOptions {
  /** `amqp://` or `amqps://` URL with the credentials and the virtual host. */
  readonly url: string;
  /** An existing queue. Only quorum queues count deliveries. */
  readonly queue: string;
  /** How long `take` asks an empty queue. Default: 5 seconds. */
  readonly waitMs?: number;
}

/**
 * The id of a job is its `message_id`; a message without one is put back with a new one. RabbitMQ keeps a message from
 * others as long as the connection lives. A rejected message goes to the queue's dead-letter exchange. The result is
 * published to the `reply_to` of the message, with its `correlation_id`.
 */
export function createAmqpJobSource({ url, queue, waitMs = WAIT_MS }: AmqpJobSourceOptions): JobSource {
  const { protocol, host, pathname } = new URL(url);
  let connection: Connection | null = null;
  let opening: Promise<Channel> | null = null;
  let lost = new AbortController();
  /** Messages that are given back later. */
  const returning = new Map<() => void, NodeJS.Timeout>();

  function open(): Promise<Channel> {
    if (connection === null) {
      connection = new Connection({ url, connectionName: "fovea-jobs", acquireTimeout: CONNECT_TIMEOUT_MS });
      // Errors of calls reach their callers; the connection recovers by itself.
      connection.on("error", () => {});
    }
    opening ??= connection
      .acquire()
      .then(async (channel) => {
        await channel.confirmSelect();
        const ofChannel = (lost = new AbortController());
        channel.on("close", () => {
          // RabbitMQ hands out all messages of the channel again.
          for (const timer of returning.values()) clearTimeout(timer);
          returning.clear();
          opening = null;
          ofChannel.abort();
        });
        return channel;
      })
      .catch((error: unknown) => {
        opening = null;
        throw error;
      });
    return opening;
  }

  function toJob(channel: Channel, message: SyncMessage, id: string): LeasedJob {
    const { deliveryTag, redelivered, headers, replyTo, correlationId } = message;
    const { signal } = lost;
    const requireLease = (): void => {
      if (signal.aborted) throw new LeaseLostError(id);
    };
    const reply = async ({ text }: JobResult): Promise<void> => {
      if (replyTo === undefined || replyTo === "") return;
      const envelope = { routingKey: replyTo, contentType: "application/json", messageId: id };
      await channel.basicPublish({ ...envelope, ...(correlationId && { correlationId }) }, Buffer.from(text));
    };
    const giveBack = (): void => {
      returning.delete(giveBack);
      if (!signal.aborted) channel.basicNack({ deliveryTag, requeue: true });
    };
    return {
      id,
      body: textOf(message.body),
      numDeliveries: Number(headers?.["x-delivery-count"] ?? (redelivered ? 1 : 0)) + 1,
      traceContext: readTraceContext((name) => headers?.[name]),
      lost: signal,
      async renew() {
        requireLease();
      },
      async complete(result) {
        requireLease();
        await reply(result);
        channel.basicAck({ deliveryTag });
      },
      async reject(result) {
        requireLease();
        await reply(result);
        channel.basicNack({ deliveryTag, requeue: false });
      },
      async release(delayMs) {
        requireLease();
        if (delayMs === 0) giveBack();
        else returning.set(giveBack, setTimeout(giveBack, delayMs));
      },
    };
  }

  /** Null if the queue is empty. Puts messages without an id back with one. */
  async function get(channel: Channel): Promise<LeasedJob | null> {
    for (;;) {
      const message = await channel.basicGet({ queue });
      if (message === undefined) return null;
      if (message.messageId !== undefined && message.messageId !== "") {
        return toJob(channel, message, message.messageId);
      }
      const { deliveryTag, headers, replyTo, correlationId, contentType, priority, expiration } = message;
      const kept = { headers, replyTo, correlationId, contentType, priority, expiration };
      const given = Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined));
      const envelope = { ...given, routingKey: queue, durable: true, messageId: randomUUID() };
      await channel.basicPublish(envelope, Buffer.from(textOf(message.body)));
      channel.basicAck({ deliveryTag });
    }
  }

  return {
    name: `${protocol}//${host}${pathname}, queue ${queue}`,
    leaseMs: Infinity,
    answersSenders: true,
    async take(maxNumJobs, signal) {
      const jobs: LeasedJob[] = [];
      for (const endMs = performance.now() + waitMs; !signal.aborted && jobs.length < maxNumJobs;) {
        const job = await get(await open());
        if (job !== null) jobs.push(job);
        else if (jobs.length > 0 || performance.now() >= endMs) break;
        else await sleep(POLL_MS, null, { signal }).catch(() => {});
      }
      return jobs;
    },
    async close() {
      for (const [giveBack, timer] of returning) {
        clearTimeout(timer);
        giveBack();
      }
      await (await opening?.catch(() => null))?.close();
      await connection?.close();
    },
  };
}

/** The client parses bodies of JSON and text. */
function textOf(body: unknown): string {
  if (typeof body === "string") return body;
  return Buffer.isBuffer(body) ? body.toString() : JSON.stringify(body ?? null);
}
