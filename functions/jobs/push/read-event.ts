/**
 * Jobs in pushed events: CloudEvents 1.0 over HTTP in binary and structured mode, messages of Pub/Sub push
 * subscriptions, and events of EventBridge.
 */
import { z } from "zod";

import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { HttpError } from "../../http/errors.ts";

export interface PushedEvent {
  readonly kind: "cloudevent" | "pubsub" | "eventbridge";
  /** The same for every delivery. */
  readonly jobId: string;
  /** For `parseMessage`. */
  readonly message: string | Buffer;
  /** Type of a CloudEvent; null for others. */
  readonly type: string | null;
}

const text = z.string("must be a string").min(1, "must not be empty").max(2048, "must have at most 2048 characters");

/** https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md: the required attributes. */
const cloudEvent = z.looseObject({
  specversion: z.literal("1.0", "must be 1.0"),
  id: text,
  source: text,
  type: text,
  data: z.unknown().optional(),
  data_base64: z.base64("must be Base64").nullish(),
});

/** https://cloud.google.com/pubsub/docs/push: the wrapped message. */
const pubSub = z.looseObject({
  message: z.looseObject({
    messageId: text,
    data: z.base64("must be Base64").nullish(),
    attributes: z.record(z.string(), z.string()).nullish(),
  }),
  subscription: text,
});

/** https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html. */
const eventBridge = z.looseObject({ id: text, source: text, "detail-type": text, detail: z.unknown().optional() });

/** Eventarc wraps messages of Pub/Sub in CloudEvents. */
const pubSubEventType = "google.cloud.pubsub.topic.v1.messagePublished";

/**
 * `body` is the parsed JSON of the request. Throws HttpError 400 for a body that is no event; the data in it is not
 * checked.
 */
export function readEvent(headers: Headers, body: object): PushedEvent {
  if (headers.has("ce-specversion")) return readCloudEvent({ ...attributesOf(headers), data: body });
  if ("specversion" in body) return readCloudEvent(body);
  if ("message" in body && "subscription" in body) return readPubSub(body);
  if ("detail" in body && "detail-type" in body) return readEventBridge(body);
  throw new HttpError(
    400,
    "unknown_event",
    "The body is no event: expected a CloudEvent (ce-specversion or specversion), a message of a Pub/Sub push subscription (message and subscription), or an event of EventBridge (detail and detail-type).",
  );
}

function readCloudEvent(event: object): PushedEvent {
  const { id, source, type, data, data_base64: base64 } = parseFields(cloudEvent, event);
  const jobId = toJobId(source, id);
  if (type === pubSubEventType && typeof data === "object" && data !== null) {
    return { ...readPubSub(data), kind: "cloudevent", type, jobId };
  }
  const message = typeof base64 === "string" ? decode(base64) : toMessage(data);
  return { kind: "cloudevent", jobId, message, type };
}

/** Two events never share it, although sources may have a fragment: such a source is encoded, after another `#`. */
function toJobId(source: string, id: string): string {
  return source.includes("#") ? `#${encodeURIComponent(source.toWellFormed())}#${id}` : `${source}#${id}`;
}

function readPubSub(body: object): PushedEvent {
  const { message, subscription } = parseFields(pubSub, body);
  return {
    kind: "pubsub",
    // Ids are unique within a topic.
    jobId: `${subscription}/${message.messageId}`,
    message: decode(message.data ?? ""),
    type: null,
  };
}

function readEventBridge(body: object): PushedEvent {
  const { id, detail } = parseFields(eventBridge, body);
  return { kind: "eventbridge", jobId: id, message: toMessage(detail), type: null };
}

/** Values of headers are percent-encoded: section 3.1.3.2 of the HTTP binding. */
function attributesOf(headers: Headers): Record<string, string> {
  const names = [...headers.keys()].filter((name) => name.startsWith("ce-"));
  return Object.fromEntries(names.map((name) => [name.slice(3), percentDecode(headers.get(name) ?? "")]));
}

function percentDecode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Data may be the text of JSON. */
function toMessage(data: unknown): string {
  return typeof data === "string" ? data : JSON.stringify(data ?? null);
}

function decode(base64: string): Buffer {
  return Buffer.from(base64, "base64");
}
