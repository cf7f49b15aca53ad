/** Jobs from a pull subscription of Google Cloud Pub/Sub. */
import type { Logger } from "../../logger.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { createPubSubApi, PubSubError } from "./pubsub-api.ts";
import type { PubSubApi, ReceivedMessage } from "./pubsub-api.ts";

/** The most that one call hands out. */
const MAX_MESSAGES = 1000;
/** The longest deadline that one call can set. */
const MAX_DEADLINE_SECONDS = 600;
/** Pub/Sub answers a call for messages after a while by itself; this is for a connection that hangs. */
const MAX_WAIT_MS = 120_000;
/** Pub/Sub's limits of a message. */
const MAX_ATTRIBUTES = 100;
const MAX_ATTRIBUTE_BYTES = 1024;

export interface PubSubJobSourceOptions {
  readonly project: string;
  readonly subscription: string;
  /** Origin of an emulator, which is called without credentials. Null: Google's, with the default credentials. */
  readonly emulatorUrl: string | null;
  /** Acknowledgement deadline of taken messages in milliseconds; at most 10 minutes count. */
  readonly leaseMs: number;
  /** Deliveries after which the runner rejects a job: the subscription must allow more. */
  readonly maxNumDeliveries: number;
  readonly logger: Logger;
  /** Default: Google's. */
  readonly url?: string;
  /** How long a call waits for messages. Default: as long as Pub/Sub lets it wait. */
  readonly waitMs?: number;
}

interface Subscription {
  readonly deadLetterPolicy?: { readonly deadLetterTopic?: string; readonly maxDeliveryAttempts?: number };
  readonly pushConfig?: { readonly pushEndpoint?: string };
}

/**
 * The id of a job is that of its message. A job is released by ending its deadline, and rejected by publishing it to the
 * subscription's dead-letter topic. Without one, a rejected message is acknowledged, as its result says why. Rejects if
 * the subscription does not exist.
 */
export async function createPubSubJobSource(options: PubSubJobSourceOptions): Promise<JobSource> {
  const { project, subscription, emulatorUrl, maxNumDeliveries, logger, waitMs = MAX_WAIT_MS } = options;
  const leaseSeconds = Math.min(Math.round(options.leaseMs / 1000), MAX_DEADLINE_SECONDS);
  const name = `projects/${project}/subscriptions/${subscription}`;
  const url = emulatorUrl ?? options.url;
  const api = createPubSubApi({ isAnonymous: emulatorUrl !== null, ...(url !== undefined && { url }) });
  const closing = new AbortController();

  async function setDeadline(ackIds: readonly string[], ackDeadlineSeconds: number): Promise<void> {
    await api.post(`${name}:modifyAckDeadline`, { ackIds, ackDeadlineSeconds });
  }

  async function publishDead(topic: string, message: ReceivedMessage["message"], { text }: JobResult): Promise<void> {
    const { data = "", attributes = {} } = message;
    const hasRoom = Object.keys(attributes).length < MAX_ATTRIBUTES;
    const reason = hasRoom ? { "fovea-result": cut(text) } : {};
    const publish = (given: object) => api.post(`${topic}:publish`, { messages: [{ data, attributes: given }] });
    try {
      await publish({ ...attributes, ...reason });
    } catch (error) {
      if (!(error instanceof PubSubError && error.statusCode === 400)) throw error;
      // Attributes count as part of the message, which may have the maximum length already.
      await publish(attributes);
    }
  }

  function toJob({ ackId, deliveryAttempt, message }: ReceivedMessage): LeasedJob {
    const { messageId: id, data = "", attributes = {} } = message;
    const whileLeased = async (action: Promise<unknown>): Promise<void> => {
      try {
        await action;
      } catch (error) {
        throw isLost(error) ? new LeaseLostError(id, error) : error;
      }
    };
    const acknowledge = () => whileLeased(api.post(`${name}:acknowledge`, { ackIds: [ackId] }));
    return {
      id,
      body: Buffer.from(data, "base64"),
      numDeliveries: Math.max(1, deliveryAttempt ?? 1),
      // The second name is that of Google's own clients.
      traceContext: readTraceContext((header) => attributes[header] ?? attributes[`googclient_${header}`]),
      lost: new AbortController().signal,
      renew: () => whileLeased(setDeadline([ackId], leaseSeconds)),
      complete: acknowledge,
      async reject(result) {
        const { deadLetterPolicy } = await api.get<Subscription>(name);
        const topic = deadLetterPolicy?.deadLetterTopic;
        if (topic !== undefined) await publishDead(topic, message, result);
        await acknowledge();
      },
      release: (delayMs) =>
        whileLeased(setDeadline([ackId], Math.min(Math.ceil(delayMs / 1000), MAX_DEADLINE_SECONDS))),
    };
  }

  await checkSubscription(api, name, { maxNumDeliveries, logger });

  return {
    name: `pubsub://${project}/${subscription}`,
    leaseMs: leaseSeconds * 1000,
    answersSenders: false,
    async take(maxNumJobs, signal) {
      const ended = AbortSignal.any([signal, closing.signal, AbortSignal.timeout(waitMs)]);
      const answer = await api.pull(name, Math.min(maxNumJobs, MAX_MESSAGES), ended);
      const messages = answer?.receivedMessages ?? [];
      if (messages.length === 0) return [];
      const ackIds = messages.map(({ ackId }) => ackId);
      await setDeadline(ackIds, leaseSeconds);
      return messages.map(toJob);
    },
    async close() {
      closing.abort();
    },
  };
}

/**
 * Warns of a subscription that cannot limit how often a job is handed out, and of one that would discard jobs before
 * they have a result. Throws for one that hands out nothing.
 */
async function checkSubscription(
  api: PubSubApi,
  name: string,
  { maxNumDeliveries, logger }: Pick<PubSubJobSourceOptions, "maxNumDeliveries" | "logger">,
): Promise<void> {
  let subscription: Subscription;
  try {
    subscription = await api.get<Subscription>(name);
  } catch (error) {
    if (!(error instanceof PubSubError && error.statusCode === 403)) throw error;
    const remedy = "Grant pubsub.subscriptions.get, or rejected jobs cannot go to the dead letters.";
    logger.warn("The subscription cannot be read.", { subscription: name, remedy });
    return;
  }
  const { deadLetterPolicy, pushConfig } = subscription;
  if (pushConfig?.pushEndpoint) {
    throw new Error(`${name} pushes its messages to ${pushConfig.pushEndpoint}. Use a pull subscription.`);
  }
  // Pub/Sub's default.
  const maxDeliveryAttempts = deadLetterPolicy?.maxDeliveryAttempts || 5;
  if (deadLetterPolicy === undefined) {
    const remedy = "Give it a dead-letter topic, or a job that ends its worker is handed out again and again.";
    logger.warn("Pub/Sub does not count deliveries of the subscription.", { subscription: name, remedy });
  } else if (maxDeliveryAttempts <= maxNumDeliveries) {
    const remedy = `Set maxDeliveryAttempts to more than JOB_MAX_DELIVERIES, which is ${maxNumDeliveries}.`;
    const limits = { maxDeliveryAttempts, maxNumDeliveries };
    logger.warn("Pub/Sub gives up jobs before they have a result.", { subscription: name, ...limits, remedy });
  }
}

/** Subscriptions with exactly-once delivery say that a deadline has passed; others accept the call. */
function isLost(error: unknown): boolean {
  return error instanceof PubSubError && error.message.includes("PERMANENT_FAILURE_INVALID_ACK_ID");
}

/** The part of a text that an attribute can hold. */
function cut(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_ATTRIBUTE_BYTES));
  return text.slice(0, read).toWellFormed();
}
