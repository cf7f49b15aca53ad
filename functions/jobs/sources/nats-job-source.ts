/** Jobs from a stream of NATS JetStream. Only this file imports the client of NATS. */
import {
  AckPolicy,
  jetstream,
  JetStreamApiCodes,
  JetStreamApiError,
  JetStreamError,
  jetstreamManager,
} from "@nats-io/jetstream";
import type { Consumer, ConsumerConfig, JetStreamManager, JsMsg } from "@nats-io/jetstream";
import { connect, errors, headers } from "@nats-io/transport-node";

import type { Logger } from "../../logger.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { aborted, WaitingCall } from "./waiting-call.ts";

/** How long a call waits for a message. The process may wait for its end when it closes. */
const WAIT_MS = 2_000;
/** The client's minimum. */
const MIN_WAIT_MS = 1_000;
const NANOSECONDS_PER_MS = 1_000_000;
/** Time in which the server must confirm that a message is done. */
const CONFIRM_MS = 5_000;
/** The client's message when a call got nothing from the server all the time. */
const heartbeatsMissed = "heartbeats missed";

export interface NatsJobSourceOptions {
  /** `host:port`. */
  readonly server: string;
  /** Null without credentials. */
  readonly user: { readonly name: string; readonly password: string } | null;
  readonly tls: boolean;
  readonly stream: string;
  /** A durable consumer with explicit acknowledgement; it is created if it does not exist. */
  readonly consumer: string;
  /** Rejected messages are published there; null drops them. */
  readonly deadLetterSubject: string | null;
  /** For a consumer that is created; an existing one has its own. */
  readonly leaseMs: number;
  readonly maxNumDeliveries: number;
  readonly logger: Logger;
}

/**
 * The id of a job is its `Nats-Msg-Id`, or the name of the stream and the sequence number of the message. The lease is
 * the consumer's `ack_wait`. Rejects if the server cannot be reached or the stream does not exist, for a consumer that
 * pushes messages, omits their bodies or expects no acknowledgement of each, and if the dead letters would be jobs again.
 */
export async function createNatsJobSource(options: NatsJobSourceOptions): Promise<JobSource> {
  const { server, user, tls, stream, consumer: consumerName, deadLetterSubject } = options;
  const connection = await connect({
    servers: server,
    name: "fovea-jobs",
    maxReconnectAttempts: -1,
    // Otherwise the second rejection of the credentials ends the connection for good, also while a password changes.
    ignoreAuthErrorAbort: true,
    ...(user && { user: user.name, pass: user.password }),
    ...(tls && { tls: {} }),
  });
  try {
    const manager = await jetstreamManager(connection);
    const client = jetstream(connection);
    const config = {
      durable_name: consumerName,
      ack_policy: AckPolicy.Explicit,
      ack_wait: options.leaseMs * NANOSECONDS_PER_MS,
      // The runner counts the deliveries itself.
      max_deliver: -1,
    };
    let { leaseMs } = options;
    let waitMs = WAIT_MS;
    /** Subjects of the stream that the consumer hands out. */
    let filters: readonly string[] = [];
    const openConsumer = async (): Promise<Consumer> => {
      const info = await manager.consumers
        .info(stream, consumerName)
        .catch(() => manager.consumers.add(stream, config));
      checkConsumer(info.config, options);
      filters = filtersOf(info.config);
      leaseMs = (info.config.ack_wait ?? config.ack_wait) / NANOSECONDS_PER_MS;
      // The server answers a longer wait without a message.
      waitMs = Math.min(WAIT_MS, maxWaitOf(info.config));
      return client.consumers.get(stream, consumerName);
    };
    let consumer: Consumer | null = await openConsumer();
    if (deadLetterSubject !== null) await checkDeadLetters(manager, deadLetterSubject, filters, options);
    // One message at a time: messages that are fetched ahead would lose their leases while they wait.
    const next = new WaitingCall<JsMsg | null>(async () => {
      consumer ??= await openConsumer();
      try {
        return await consumer.next({ expires: waitMs });
      } catch (error) {
        // The stream may have been deleted; another one with its name has no consumer yet.
        consumer = null;
        // A busy server is late with its heartbeats, and so is a stream that is gone.
        if (!(error instanceof JetStreamError && error.message === heartbeatsMissed)) throw error;
        consumer = await openConsumer();
        return null;
      }
    });

    const publishDead = async (subject: string, message: JsMsg, result: JobResult): Promise<void> => {
      const { info, data, timestampNanos } = message;
      const reasons = headers();
      // Values of headers are single lines of ASCII.
      reasons.set("Fovea-Result", encodeURIComponent(result.text.slice(0, 1000).toWellFormed()));
      // Senders may give messages of two streams the same id, and a stream that is created again counts from 1.
      const msgID = `${info.stream}-${info.streamSequence}-${timestampNanos}-rejected`;
      try {
        await client.publish(subject, data, { headers: reasons, msgID });
      } catch (error) {
        if (isUnheard(error)) throw new Error(noStreamOf(subject), { cause: error });
        if (!(error instanceof errors.InvalidArgumentError)) throw error;
        // Headers count as part of the message, which may have the maximum length already.
        await client.publish(subject, data);
      }
    };

    const toJob = (message: JsMsg): LeasedJob => {
      const { streamSequence, deliveryCount } = message.info;
      const givenId = message.headers?.get("Nats-Msg-Id");
      const id = givenId || `${stream}-${streamSequence}`;
      const confirm = async (): Promise<void> => {
        if (!(await message.ackAck({ timeout: CONFIRM_MS }))) throw new LeaseLostError(id);
      };
      return {
        id,
        body: Buffer.from(message.data),
        ...(!givenId && { addedAt: String(message.timestampNanos) }),
        numDeliveries: deliveryCount,
        traceContext: readTraceContext((name) => message.headers?.get(name)),
        lost: new AbortController().signal,
        async renew() {
          message.working();
          await connection.flush();
        },
        complete: confirm,
        async reject(result) {
          if (deadLetterSubject !== null) await publishDead(deadLetterSubject, message, result);
          await confirm();
        },
        async release(delayMs) {
          message.nak(delayMs);
          await connection.flush();
        },
      };
    };

    return {
      name: `${tls ? "tls" : "nats"}://${server}, stream ${stream}, consumer ${consumerName}`,
      get leaseMs() {
        return leaseMs;
      },
      answersSenders: false,
      async take(_, signal) {
        const message = await next.wait(signal);
        return message === aborted || message === null ? [] : [toJob(message)];
      },
      async close() {
        (await next.rest())?.nak();
        await connection.drain();
      },
    };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** Throws for a consumer that hands out no jobs or would lose them, and warns of one that gives them up before they have a result. */
function checkConsumer(
  { ack_policy: ackPolicy, max_deliver: maxDeliver = -1, ...config }: Partial<ConsumerConfig>,
  { stream, consumer, maxNumDeliveries, logger }: NatsJobSourceOptions,
): void {
  if (config.deliver_subject) {
    throw new Error(`The consumer ${consumer} of ${stream} has a deliver_subject; create it without one.`);
  }
  if (config.headers_only === true) {
    throw new Error(`The consumer ${consumer} of ${stream} has headers_only; create it without that.`);
  }
  if (ackPolicy !== AckPolicy.Explicit) {
    throw new Error(`The consumer ${consumer} of ${stream} has ack_policy ${ackPolicy}; create it with explicit.`);
  }
  const maxWaitMs = maxWaitOf(config);
  if (maxWaitMs < MIN_WAIT_MS) {
    throw new Error(
      `The consumer ${consumer} of ${stream} has a max_expires of ${maxWaitMs} ms; create it with at least ${MIN_WAIT_MS} ms, or without one.`,
    );
  }
  if (maxDeliver <= 0 || maxDeliver > maxNumDeliveries) return;
  const remedy = `Set max_deliver to more than JOB_MAX_DELIVERIES, which is ${maxNumDeliveries}.`;
  logger.warn("NATS gives up jobs before they have a result.", { stream, consumer, maxDeliver, remedy });
}

/** How long the consumer lets a call wait. */
function maxWaitOf({ max_expires: maxExpires = 0 }: Partial<ConsumerConfig>): number {
  return maxExpires > 0 ? maxExpires / NANOSECONDS_PER_MS : Infinity;
}

/** Throws if the consumer would hand out dead letters as jobs, and warns if no stream keeps them. */
async function checkDeadLetters(
  manager: JetStreamManager,
  subject: string,
  filters: readonly string[],
  { stream, consumer, logger }: NatsJobSourceOptions,
): Promise<void> {
  try {
    const keeper = await manager.streams.find(subject);
    if (keeper !== stream || !filters.some((filter) => matchesSubject(filter, subject))) return;
  } catch (error) {
    const isUnknown = error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound;
    // Otherwise the user may lack the permission to ask.
    const reason = isUnknown ? noStreamOf(subject) : "It is not known which stream has it.";
    logger.warn("Rejected jobs may not get to the dead letters.", { subject, reason, error });
    return;
  }
  throw new Error(
    `The subject ${subject} of dead letters is one of the stream ${stream}, and the consumer ${consumer} would hand them out as jobs: choose a subject of another stream, or a filter_subject of the consumer that does not match it.`,
  );
}

function noStreamOf(subject: string): string {
  return `No stream has the subject ${subject}, which JOB_SOURCE names in dead=: create one for the dead letters.`;
}

/** Whether no stream has the subject of a message. */
function isUnheard(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof errors.RequestError && cause.isNoResponders();
}

function filtersOf({ filter_subject: filter, filter_subjects: filters }: Partial<ConsumerConfig>): readonly string[] {
  const given = filter ? [filter] : (filters ?? []);
  return given.length === 0 ? [">"] : given;
}

/** As NATS matches: `*` stands for a token, `>` for one or more at the end. */
function matchesSubject(filter: string, subject: string): boolean {
  const tokens = subject.split(".");
  const wanted = filter.split(".");
  const numFixed = wanted.at(-1) === ">" ? wanted.length - 1 : wanted.length;
  if (numFixed === wanted.length ? tokens.length !== numFixed : tokens.length <= numFixed) return false;
  return wanted.slice(0, numFixed).every((token, index) => token === "*" || token === tokens[index]);
}
