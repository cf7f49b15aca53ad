/** Jobs from a stream of NATS JetStream. Only this file imports the client of NATS. */
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { ConsumerConfig, JsMsg } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";

import type { Logger } from "../../logger.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { aborted, WaitingCall } from "./waiting-call.ts";

/** How long a call waits for a message. The process may wait for its end when it closes. */
const WAIT_MS = 2_000;
const NANOSECONDS_PER_MS = 1_000_000;
/** Time in which the server must confirm that a message is done. */
const CONFIRM_MS = 5_000;

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
  /** Default: 2 seconds; at least 1. */
  readonly waitMs?: number;
}

/**
 * The id of a job is its `Nats-Msg-Id`, or the name of the stream and the sequence number of the message. The lease is
 * the consumer's `ack_wait`. Rejects if the server cannot be reached or the stream does not exist,
 * and for a consumer that expects no acknowledgement of each message.
 */
export async function createNatsJobSource(options: NatsJobSourceOptions): Promise<JobSource> {
  const { server, user, tls, stream, consumer: consumerName, deadLetterSubject } = options;
  const connection = await connect({
    servers: server,
    name: "fovea-jobs",
    maxReconnectAttempts: -1,
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
    const info = await manager.consumers.info(stream, consumerName).catch(() => manager.consumers.add(stream, config));
    checkConsumer(info.config, options);
    const leaseMs = (info.config.ack_wait ?? config.ack_wait) / NANOSECONDS_PER_MS;
    const consumer = await client.consumers.get(stream, consumerName);
    // One message at a time: messages that are fetched ahead would lose their leases while they wait.
    const next = new WaitingCall<JsMsg | null>(() => consumer.next({ expires: options.waitMs ?? WAIT_MS }));

    const toJob = (message: JsMsg): LeasedJob => {
      const id = message.headers?.get("Nats-Msg-Id") || `${stream}-${message.info.streamSequence}`;
      const confirm = async (): Promise<void> => {
        if (!(await message.ackAck({ timeout: CONFIRM_MS }))) throw new LeaseLostError(id);
      };
      return {
        id,
        body: message.string(),
        numDeliveries: message.info.deliveryCount,
        traceContext: readTraceContext((name) => message.headers?.get(name)),
        lost: new AbortController().signal,
        async renew() {
          message.working();
          await connection.flush();
        },
        complete: confirm,
        async reject(result) {
          if (deadLetterSubject !== null) {
            const reasons = headers();
            // Values of headers are single lines of ASCII.
            reasons.set("Fovea-Result", encodeURIComponent(result.text.slice(0, 1000).toWellFormed()));
            await client.publish(deadLetterSubject, message.data, { headers: reasons, msgID: `${id}-rejected` });
          }
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
      leaseMs,
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

/** Throws for a consumer that would lose jobs, and warns of one that gives them up before they have a result. */
function checkConsumer(
  { ack_policy: ackPolicy, max_deliver: maxDeliver = -1 }: Partial<ConsumerConfig>,
  { stream, consumer, maxNumDeliveries, logger }: NatsJobSourceOptions,
): void {
  if (ackPolicy !== AckPolicy.Explicit) {
    throw new Error(`The consumer ${consumer} of ${stream} has ack_policy ${ackPolicy}; create it with explicit.`);
  }
  if (maxDeliver <= 0 || maxDeliver > maxNumDeliveries) return;
  const remedy = `Set max_deliver to more than JOB_MAX_DELIVERIES, which is ${maxNumDeliveries}.`;
  logger.warn("NATS gives up jobs before they have a result.", { stream, consumer, maxDeliver, remedy });
}
