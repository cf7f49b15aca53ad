/** Jobs from a queue of RabbitMQ (AMQP 0.9.1). Only this file imports the client of RabbitMQ. */
import { randomUUID } from "node:crypto";
import { setImmediate as delivered, setTimeout as sleep } from "node:timers/promises";
import { Connection } from "rabbitmq-client";
import type { Channel, SyncMessage } from "rabbitmq-client";

import type { Logger } from "../../logger.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { toJsonText } from "./parsed-body.ts";
import { aborted, WaitingCall } from "./waiting-call.ts";

const WAIT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** Time for a server to confirm that the connection ends. */
const CLOSE_TIMEOUT_MS = 2_000;
const REPLY_RETRY_MS = 5_000;

export interface AmqpJobSourceOptions {
  /** `amqp://` or `amqps://` URL with the credentials and the virtual host. */
  readonly url: string;
  /** An existing queue. Only quorum queues count deliveries. */
  readonly queue: string;
  readonly logger: Logger;
  /** How long `take` waits at an empty queue. Default: 5 seconds. */
  readonly waitMs?: number;
  /** Delay before a job whose result could not be published is handed out again. Default: 5 seconds. */
  readonly replyRetryMs?: number;
}

type Message = Omit<SyncMessage, "messageCount">;

/**
 * The id of a job is its `message_id`; a message without one is put back with a new one. RabbitMQ keeps a message from
 * others as long as the connection lives. A rejected message goes to the queue's dead-letter exchange. The result is
 * published to the `reply_to` of the message, with its `correlation_id`.
 */
export function createAmqpJobSource(options: AmqpJobSourceOptions): JobSource {
  const { url, queue, logger, waitMs = WAIT_MS, replyRetryMs = REPLY_RETRY_MS } = options;
  const { protocol, host, pathname } = new URL(url);
  let connection: Connection | null = null;
  let opening: Promise<Channel> | null = null;
  let current: Channel | null = null;
  let hasWarned = false;
  let lost = new AbortController();
  /** Messages that are given back later. */
  const returning = new Map<() => void, NodeJS.Timeout>();
  const channels = new WaitingCall(open);

  function open(): Promise<Channel> {
    if (connection === null) {
      connection = new Connection({
        url,
        connectionName: "fovea-jobs",
        acquireTimeout: CONNECT_TIMEOUT_MS,
        // Otherwise the second of two small messages waits for the first one's acknowledgement, 40 ms on Linux.
        noDelay: true,
      });
      // Errors of calls reach their callers; the connection recovers by itself.
      connection.on("error", () => {});
    }
    opening ??= connection
      .acquire()
      .then(async (channel) => {
        await channel.confirmSelect();
        // A consumer that waits gets one message, for which there is room; the others stay in the queue.
        await channel.basicQos({ prefetchCount: 1 });
        const ofChannel = (lost = new AbortController());
        current = channel;
        channel.on("close", () => {
          // RabbitMQ hands out all messages of the channel again.
          for (const timer of returning.values()) clearTimeout(timer);
          returning.clear();
          opening = null;
          current = null;
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

  function toJob(channel: Channel, message: Message, id: string): LeasedJob {
    const { deliveryTag, redelivered, headers, replyTo, correlationId } = message;
    if (redelivered && headers?.["x-delivery-count"] === undefined && !hasWarned) {
      hasWarned = true;
      const remedy = "Use a quorum queue, or a job that ends its worker is handed out again and again.";
      logger.warn("RabbitMQ does not count deliveries of the queue.", { queue, remedy });
    }
    const { signal } = lost;
    const requireLease = (): void => {
      if (signal.aborted) throw new LeaseLostError(id);
    };
    const giveBack = (): void => {
      returning.delete(giveBack);
      if (!signal.aborted) channel.basicNack({ deliveryTag, requeue: true });
    };
    const giveBackLater = (delayMs: number): void => {
      returning.set(giveBack, setTimeout(giveBack, delayMs));
    };
    const reply = async ({ text }: JobResult): Promise<void> => {
      if (replyTo === undefined || replyTo === "") return;
      const envelope = { routingKey: replyTo, contentType: "application/json", messageId: id };
      try {
        await channel.basicPublish({ ...envelope, ...(correlationId && { correlationId }) }, Buffer.from(text));
      } catch (error) {
        // Its lease does not expire.
        if (!signal.aborted) giveBackLater(replyRetryMs);
        throw error;
      }
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
        else giveBackLater(delayMs);
      },
    };
  }

  /**
   * Consumes until a message comes, `waitMs` have passed or `signal` is aborted. Null if no message has come. The consumer
   * is cancelled before its message is acknowledged, so it never gets another one.
   */
  async function waitForMessage(channel: Channel, signal: AbortSignal): Promise<Message | null> {
    let message: Message | null = null;
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const end = (): void => resolve();
    const timer = setTimeout(end, waitMs);
    signal.addEventListener("abort", end, { once: true });
    channel.once("close", end);
    // The queue is gone, or its leader.
    channel.once("basic.cancel", end);
    try {
      if (signal.aborted) return null;
      const { consumerTag } = await channel.basicConsume({ queue }, (delivery) => {
        message = delivery;
        end();
      });
      await ended;
      if (channel.active) await channel.basicCancel(consumerTag);
      // The client hands over messages that arrived before the confirmation in callbacks of their own.
      await delivered();
      return message;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      channel.off("close", end);
      channel.off("basic.cancel", end);
    }
  }

  /** Null for a message without an id, which goes back to the queue with one. */
  async function accept(channel: Channel, message: Message): Promise<LeasedJob | null> {
    if (message.messageId !== undefined && message.messageId !== "") {
      return toJob(channel, message, message.messageId);
    }
    const { deliveryTag, headers, replyTo, correlationId, contentType, priority, expiration } = message;
    const kept = { headers, replyTo, correlationId, contentType, priority, expiration };
    const given = Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined));
    const envelope = { ...given, routingKey: queue, durable: true, messageId: randomUUID() };
    try {
      await channel.basicPublish(envelope, Buffer.from(textOf(message.body)));
    } catch (error) {
      if (channel.active) channel.basicNack({ deliveryTag, requeue: true });
      throw error;
    }
    channel.basicAck({ deliveryTag });
    return null;
  }

  return {
    name: `${protocol}//${host}${pathname}, queue ${queue}`,
    leaseMs: Infinity,
    answersSenders: true,
    async take(maxNumJobs, signal) {
      const channel = await channels.wait(signal);
      const jobs: LeasedJob[] = [];
      if (channel === aborted) return jobs;
      try {
        while (!signal.aborted && jobs.length < maxNumJobs) {
          let message: Message | null = (await channel.basicGet({ queue })) ?? null;
          if (message === null && jobs.length === 0) message = await waitForMessage(channel, signal);
          if (message === null) break;
          const job = await accept(channel, message);
          if (job !== null) jobs.push(job);
        }
      } catch (error) {
        // The jobs so far count: their leases do not expire.
        if (jobs.length === 0) throw error;
      }
      return jobs;
    },
    async close() {
      for (const [giveBack, timer] of returning) {
        clearTimeout(timer);
        giveBack();
      }
      const closing = (async () => {
        await current?.close();
        await connection?.close();
      })();
      const timeout = new AbortController();
      await Promise.race([closing, sleep(CLOSE_TIMEOUT_MS, null, { signal: timeout.signal }).catch(() => {})]);
      timeout.abort();
      // RabbitMQ hands out the jobs of a connection that ends.
      connection?.unsafeDestroy();
    },
  };
}

/** The client parses bodies of JSON and text. */
function textOf(body: unknown): string {
  if (typeof body === "string") return body;
  return Buffer.isBuffer(body) ? body.toString() : toJsonText(body);
}
