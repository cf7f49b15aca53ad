/** Jobs from a stream of NATS JetStream. Only this file imports the client of NATS. */
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { JsMsg } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";

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
  /** Default: 2 seconds; at least 1. */
  readonly waitMs?: number;
}

/**
 * The id of a job is its `Nats-Msg-Id`, or the name of the stream and the sequence number of the message. The lease is
 * the consumer's `ack_wait`. Rejects if the server cannot be reached or the stream does not exist.
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
