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
import { aborted, WaitingCall } from "./waiting-call.ts";

const WAIT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** Longest pause between attempts to connect, so that jobs go on soon after an outage. */
const MAX_RECONNECT_MS = 5_000;
/** Time for a server to confirm that the connection ends. */
const CLOSE_TIMEOUT_MS = 2_000;
const REPLY_RETRY_MS = 5_000;
/** A consumer that nothing waits for any more ends after this time, so that it keeps no message from other workers. */
const MAX_CONSUMER_IDLE_MS = 1_000;
/** Answers to a worker that may not have an exchange of its own, or whose exchange another program has made. */
const refusals: ReadonlySet<unknown> = new Set(["ACCESS_REFUSED", "PRECONDITION_FAILED"]);

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

type Envelope = Exclude<Parameters<Channel["basicPublish"]>[0], string>;
type Message = Omit<SyncMessage, "messageCount" | "body"> & { readonly body: Buffer };

/** A channel that has at most one message. Mutable. */
interface JobChannel {
  readonly channel: Channel;
  /** Aborted when the channel is closed: RabbitMQ then hands out its message again. */
  readonly closed: AbortController;
  /** Of the job that has the channel, for logs. */
  jobId: string | null;
  /** Gives the message back. */
  returning: NodeJS.Timeout | undefined;
}

/** Waits for the first message of an empty queue, across several calls of `take`. Mutable. */
interface WaitingConsumer {
  readonly owner: JobChannel;
  readonly tag: string;
  /** Resolves when a message has come, or when none can come any more. */
  readonly ended: Promise<void>;
  readonly end: () => void;
  message: Message | null;
  /** Ends the consumer, unless `take` is called again soon. */
  idle: NodeJS.Timeout | undefined;
}

/**
 * The id of a job is its `message_id`; a message without one is put back with a new one, through an exchange that leads
 * to its queue alone: it keeps its routing keys, which decide where it goes when it is rejected. RabbitMQ keeps a message
 * from others as long as its channel lives, at most for its `consumer_timeout`: then it closes the channel. So each
 * message has a channel of its own, and takes no other job with it. A rejected message goes to the queue's dead-letter
 * exchange. The result is published to the `reply_to` of the message, with its `correlation_id`.
 */
export function createAmqpJobSource(options: AmqpJobSourceOptions): JobSource {
  const { url, queue, logger, waitMs = WAIT_MS, replyRetryMs = REPLY_RETRY_MS } = options;
  const { protocol, host, pathname } = new URL(url);
  let connection: Connection | null = null;
  let hasWarned = false;
  /** Of the messages that are put back. Null if RabbitMQ refuses it: then they lose their routing keys. */
  let ownExchange: string | null = `fovea-jobs.${queue}`;
  /** Channels that have declared it. */
  const leadingBack = new WeakSet<Channel>();
  const opened = new Set<JobChannel>();
  /** Open channels without a message. */
  const free: JobChannel[] = [];
  let consumer: WaitingConsumer | null = null;
  const channels = new WaitingCall(async () => takeFree() ?? (await open()));

  async function open(): Promise<JobChannel> {
    if (connection === null) {
      connection = new Connection({
        url,
        connectionName: "fovea-jobs",
        acquireTimeout: CONNECT_TIMEOUT_MS,
        retryHigh: MAX_RECONNECT_MS,
        // Otherwise the second of two small messages waits for the first one's acknowledgement, 40 ms on Linux.
        noDelay: true,
      });
      // Errors of calls reach their callers; the connection recovers by itself.
      connection.on("error", () => {});
    }
    const channel = await connection.acquire({ emitErrorsFromChannel: true });
    leaveBodiesUnparsed(channel);
    const owner: JobChannel = { channel, closed: new AbortController(), jobId: null, returning: undefined };
    channel.on("error", (error: unknown) => reportClosing(owner, error));
    channel.on("close", () => {
      clearTimeout(owner.returning);
      opened.delete(owner);
      owner.closed.abort();
    });
    opened.add(owner);
    await channel.confirmSelect();
    // A consumer that waits gets one message, for which there is room; the others stay in the queue.
    await channel.basicQos({ prefetchCount: 1 });
    return owner;
  }

  function takeFree(): JobChannel | null {
    for (let owner = free.pop(); owner !== undefined; owner = free.pop()) if (owner.channel.active) return owner;
    return null;
  }

  function release(owner: JobChannel): void {
    owner.jobId = null;
    if (owner.channel.active) free.push(owner);
  }

  function reportClosing({ jobId }: JobChannel, error: unknown): void {
    if (!/acknowledgement .*timed out/.test(String(error))) {
      return logger.warn("RabbitMQ closed a channel.", { queue, jobId, error });
    }
    const remedy =
      "Set RabbitMQ's consumer_timeout (30 minutes by default), or consumer-timeout in a policy of the queue, above the time that a job takes.";
    logger.error("A job took longer than RabbitMQ waits; it is handed out again.", { queue, jobId, remedy, error });
  }

  function toJob(owner: JobChannel, message: Message, id: string): LeasedJob {
    const { channel, closed } = owner;
    const { deliveryTag, redelivered, headers, replyTo, correlationId } = message;
    const numReturns = numReturnsOf(message);
    if (redelivered && numReturns === null && !hasWarned) {
      hasWarned = true;
      const remedy = "Use a quorum queue, or a job that ends its worker is handed out again and again.";
      logger.warn("RabbitMQ does not count deliveries of the queue.", { queue, remedy });
    }
    owner.jobId = id;
    let hasEnded = false;
    const end = (): void => {
      if (closed.signal.aborted || hasEnded) throw new LeaseLostError(id);
      hasEnded = true;
    };
    const reply = async ({ text }: JobResult): Promise<void> => {
      if (replyTo === undefined || replyTo === "") return;
      const envelope = { routingKey: replyTo, contentType: "application/json", messageId: id };
      try {
        await channel.basicPublish({ ...envelope, ...(correlationId && { correlationId }) }, Buffer.from(text));
      } catch (error) {
        // Its lease does not expire.
        giveBack(owner, deliveryTag, replyRetryMs);
        throw error;
      }
    };
    return {
      id,
      body: message.body,
      numDeliveries: (numReturns ?? (redelivered ? 1 : 0)) + 1,
      traceContext: readTraceContext((name) => headers?.[name]),
      lost: closed.signal,
      async renew() {
        if (closed.signal.aborted || hasEnded) throw new LeaseLostError(id);
      },
      async complete(result) {
        end();
        await reply(result);
        channel.basicAck({ deliveryTag });
        release(owner);
      },
      async reject(result) {
        end();
        await reply(result);
        channel.basicNack({ deliveryTag, requeue: false });
        release(owner);
      },
      async release(delayMs) {
        end();
        giveBack(owner, deliveryTag, delayMs);
      },
    };
  }

  function giveBack(owner: JobChannel, deliveryTag: number, delayMs: number): void {
    const give = (): void => {
      if (!owner.channel.active) return;
      owner.channel.basicNack({ deliveryTag, requeue: true });
      release(owner);
    };
    if (delayMs === 0) give();
    else if (owner.channel.active) owner.returning = setTimeout(give, delayMs);
  }

  async function startConsumer(owner: JobChannel): Promise<WaitingConsumer> {
    const { channel } = owner;
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    channel.once("close", end);
    // The queue is gone, or its leader.
    channel.once("basic.cancel", end);
    const { consumerTag: tag } = await channel.basicConsume({ queue }, (message) => {
      started.message = message;
      end();
    });
    const started: WaitingConsumer = { owner, tag, ended, end, message: null, idle: undefined };
    return started;
  }

  /** It is cancelled before its message is acknowledged, so it never gets another one. */
  async function endConsumer({ owner: { channel }, tag, end }: WaitingConsumer): Promise<void> {
    if (channel.active) await channel.basicCancel(tag);
    channel.off("close", end);
    channel.off("basic.cancel", end);
    // The client hands over messages that arrived before the confirmation in callbacks of their own.
    await delivered();
  }

  /**
   * Waits until the consumer has a message, `waitMs` have passed or `signal` is aborted. Null if no message has come. The
   * consumer stays for the next call: a message that arrives while a consumer is cancelled counts a delivery more.
   */
  async function waitForMessage(current: WaitingConsumer, signal: AbortSignal): Promise<Message | null> {
    clearTimeout(current.idle);
    const timeout = new AbortController();
    const { promise: stopped, resolve: stop } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => stop(), { once: true, signal: timeout.signal });
    if (signal.aborted) stop();
    const timer = setTimeout(() => stop(), waitMs);
    const hasEnded = await Promise.race([current.ended.then(() => true), stopped.then(() => false)]);
    timeout.abort();
    clearTimeout(timer);
    if (!hasEnded && !signal.aborted) {
      current.idle = setTimeout(() => void endIdleConsumer(current), MAX_CONSUMER_IDLE_MS);
      return null;
    }
    consumer = null;
    await endConsumer(current);
    if (current.message === null) release(current.owner);
    return current.message;
  }

  async function endIdleConsumer(current: WaitingConsumer): Promise<void> {
    consumer = null;
    // A channel that closes meanwhile gives its message back.
    await endConsumer(current).catch(() => {});
    if (current.message === null) release(current.owner);
    else giveBack(current.owner, current.message.deliveryTag, 0);
  }

  /** Null for a message without an id, which goes back to the queue with one. */
  async function accept(owner: JobChannel, message: Message): Promise<LeasedJob | null> {
    if (message.messageId !== undefined && message.messageId !== "") {
      return toJob(owner, message, message.messageId);
    }
    const { deliveryTag, headers, replyTo, correlationId, contentType, priority, expiration } = message;
    const { type, appId, timestamp } = message;
    const kept = { headers, replyTo, correlationId, contentType, priority, expiration, type, appId, timestamp };
    const given = Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined));
    try {
      await putBack(owner.channel, { ...given, durable: true, messageId: randomUUID() }, message);
    } catch (error) {
      giveBack(owner, deliveryTag, 0);
      throw error;
    }
    owner.channel.basicAck({ deliveryTag });
    release(owner);
    return null;
  }

  async function putBack(channel: Channel, envelope: Envelope, { routingKey, body }: Message): Promise<void> {
    if (ownExchange === null) {
      // The queues that it names have their copies already.
      const { CC: _, ...headers } = envelope.headers ?? {};
      await channel.basicPublish({ ...envelope, headers, routingKey: queue }, body);
      return;
    }
    try {
      if (!leadingBack.has(channel)) {
        // It goes with its queue, so no message can be lost in it.
        await channel.exchangeDeclare({ exchange: ownExchange, type: "fanout", durable: true, autoDelete: true });
        await channel.queueBind({ exchange: ownExchange, queue });
        leadingBack.add(channel);
      }
      await channel.basicPublish({ ...envelope, exchange: ownExchange, routingKey }, body);
    } catch (error) {
      if (refusals.has((error as { readonly code?: unknown }).code)) {
        const remedy = `Allow the worker to configure and write the exchange ${ownExchange}, or give each message a message_id.`;
        logger.warn("Messages without an id lose their routing keys.", { queue, remedy, error });
        ownExchange = null;
      }
      throw error;
    }
  }

  /** The next message and its channel. Null if the queue is empty, or `signal` is aborted. */
  async function nextMessage(mayWait: boolean, signal: AbortSignal): Promise<[JobChannel, Message] | null> {
    if (consumer === null) {
      const owner = await channels.wait(signal);
      if (owner === aborted) return null;
      const message = (await owner.channel.basicGet({ queue })) as Message | undefined;
      if (message !== undefined) return [owner, message];
      if (!mayWait) {
        release(owner);
        return null;
      }
      consumer = await startConsumer(owner);
    }
    const { owner } = consumer;
    const message = await waitForMessage(consumer, signal);
    return message === null ? null : [owner, message];
  }

  return {
    name: `${protocol}//${host}${pathname}, queue ${queue}`,
    leaseMs: Infinity,
    answersSenders: true,
    async take(maxNumJobs, signal) {
      const jobs: LeasedJob[] = [];
      try {
        while (!signal.aborted && jobs.length < maxNumJobs) {
          const next = await nextMessage(jobs.length === 0, signal);
          if (next === null) break;
          const job = await accept(...next);
          if (job !== null) jobs.push(job);
        }
      } catch (error) {
        // The jobs so far count: their leases do not expire.
        if (jobs.length === 0) throw error;
      }
      return jobs;
    },
    async close() {
      clearTimeout(consumer?.idle);
      consumer = null;
      // RabbitMQ hands out the messages of channels that are closed.
      const closing = (async () => {
        await Promise.all([...opened].map(({ channel }) => channel.close()));
        await connection?.close();
      })();
      const timeout = new AbortController();
      await Promise.race([closing, sleep(CLOSE_TIMEOUT_MS, null, { signal: timeout.signal }).catch(() => {})]);
      timeout.abort();
      connection?.unsafeDestroy();
    },
  };
}

/**
 * How often a message has come back to its queue. RabbitMQ 4.3 counts each time in `x-acquired-count`, and only failures
 * in `x-delivery-count`; versions before it have `x-delivery-count` alone. Null if the queue does not count.
 */
function numReturnsOf({ headers }: Message): number | null {
  const counts = [headers?.["x-acquired-count"], headers?.["x-delivery-count"]].map(Number).filter(Number.isInteger);
  return counts.length === 0 ? null : Math.max(...counts);
}

/**
 * The client parses bodies of JSON and text that are not encoded. A message of RabbitMQ may have 128 MiB, whose values
 * would take gigabytes, and end each worker before its deliveries can be counted.
 */
function leaveBodiesUnparsed(channel: Channel): void {
  const internal = channel as unknown as { _onHeader: (frame: { fields: { contentEncoding?: string } }) => void };
  const onHeader = internal._onHeader.bind(channel);
  internal._onHeader = (frame) => {
    frame.fields.contentEncoding ||= "identity";
    onHeader(frame);
  };
}
