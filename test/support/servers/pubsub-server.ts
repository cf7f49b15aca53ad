/**
 * Google Cloud Pub/Sub's REST API as far as jobs need it, held to its published contract: the discovery document of
 * pubsub:v1, revision 20261027 (test/fixtures/pubsub/discovery.json). Every request and answer is checked against it, and
 * the server notes what breaks it. Deliveries, deadlines and dead letters follow the descriptions there, and Google's
 * emulator 0.8.20 passes the same contract suite of job sources.
 */
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Ajv2020 } from "ajv/dist/2020.js";

export interface PubSubServer extends AsyncDisposable {
  readonly url: string;
  readonly violations: readonly string[];
  /** Null accepts every caller. Otherwise callers with other tokens get 401. */
  token: string | null;
  /** Answers that calls get instead of theirs, one per call whose path contains the text. */
  readonly fail: (path: string, ...statuses: readonly number[]) => void;
  /** Answers of `fail` that no call has got yet. */
  readonly numFailures: () => number;
}

interface Message {
  readonly messageId: string;
  readonly publishTime: string;
  readonly data?: string;
  readonly attributes?: Readonly<Record<string, string>>;
}

interface Delivery {
  readonly message: Message;
  numAttempts: number;
  /** Null while no client holds it. */
  ackId: string | null;
  deadline: number;
}

interface Subscription {
  readonly topic: string;
  readonly ackDeadlineSeconds?: number;
  readonly deadLetterPolicy?: { readonly deadLetterTopic: string; readonly maxDeliveryAttempts?: number };
  readonly deliveries: Set<Delivery>;
  readonly description: object;
}

interface Method {
  readonly httpMethod: string;
  readonly path: string;
  readonly request?: { readonly $ref: string };
  readonly response: { readonly $ref: string };
}

interface Discovery {
  readonly methods: Readonly<Record<string, Method>>;
  readonly schemas: Readonly<Record<string, { readonly properties?: object }>>;
}

/** How long a call waits for messages. Google's waits for up to 90 seconds. */
const HOLD_MS = 1_000;
const LOOK_MS = 1;
const DEFAULT_DEADLINE_SECONDS = 10;

// `any` is no type of JSON Schema.
const discoveryText = readFileSync(new URL("../../fixtures/pubsub/discovery.json", import.meta.url), "utf8");
const discovery = JSON.parse(discoveryText.replaceAll(/"type": "any"/g, '"title": "any"')) as Discovery;
const ajv = new Ajv2020({ strict: false, validateFormats: false });
for (const [name, { properties, ...schema }] of Object.entries(discovery.schemas)) {
  ajv.addSchema({ ...schema, $id: name, ...(properties && { properties, additionalProperties: false }) });
}

export async function startPubSubServer(): Promise<PubSubServer> {
  const topics = new Set<string>();
  const subscriptions = new Map<string, Subscription>();
  const violations: string[] = [];
  const failures: { readonly path: string; readonly status: number }[] = [];
  let token: string | null = null;

  function check(schema: string, value: unknown, what: string): void {
    if (!ajv.validate(schema, value)) violations.push(`${what}: ${ajv.errorsText()}`);
  }

  function publish(topic: string, content: Omit<Message, "messageId" | "publishTime">): string {
    const message = { ...content, messageId: randomUUID(), publishTime: new Date().toISOString() };
    for (const subscription of subscriptions.values()) {
      if (subscription.topic !== topic) continue;
      subscription.deliveries.add({ message, numAttempts: 0, ackId: null, deadline: 0 });
    }
    return message.messageId;
  }

  function handOut({ deliveries, deadLetterPolicy, ackDeadlineSeconds }: Subscription, maxMessages: number): object[] {
    const received: object[] = [];
    for (const delivery of deliveries) {
      if (received.length === maxMessages) break;
      if (delivery.ackId !== null && performance.now() < delivery.deadline) continue;
      if (deadLetterPolicy !== undefined && delivery.numAttempts >= (deadLetterPolicy.maxDeliveryAttempts ?? 5)) {
        publish(deadLetterPolicy.deadLetterTopic, delivery.message);
        deliveries.delete(delivery);
        continue;
      }
      delivery.numAttempts++;
      delivery.ackId = randomUUID();
      delivery.deadline = performance.now() + (ackDeadlineSeconds ?? DEFAULT_DEADLINE_SECONDS) * 1000;
      const { ackId, message, numAttempts } = delivery;
      received.push({ ackId, message, ...(deadLetterPolicy && { deliveryAttempt: numAttempts }) });
    }
    return received;
  }

  /** A call whose caller is gone takes no messages. */
  async function pull(subscription: Subscription, maxMessages: number, response: ServerResponse): Promise<object> {
    for (const end = performance.now() + HOLD_MS; performance.now() < end && !response.destroyed;) {
      const receivedMessages = handOut(subscription, maxMessages);
      if (receivedMessages.length > 0) return { receivedMessages };
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return {};
  }

  const held = ({ deliveries }: Subscription, ackIds: readonly string[]): Delivery[] =>
    [...deliveries].filter(({ ackId }) => ackId !== null && ackIds.includes(ackId));

  async function answerCall(
    name: string,
    resource: string,
    body: never,
    response: ServerResponse,
  ): Promise<object | null> {
    if (name === "topics.create") {
      topics.add(resource);
      return { name: resource };
    }
    if (name === "topics.publish") {
      if (!topics.has(resource)) return null;
      const { messages } = body as { readonly messages: readonly Message[] };
      return { messageIds: messages.map((message) => publish(resource, message)) };
    }
    if (name === "subscriptions.create") {
      const description = { ...(body as object), name: resource };
      const created = { ...(body as Omit<Subscription, "deliveries" | "description">), description };
      if (!topics.has(created.topic)) return null;
      subscriptions.set(resource, { ...created, deliveries: new Set() });
      return description;
    }
    const subscription = subscriptions.get(resource);
    if (subscription === undefined) return null;
    const {
      maxMessages = 0,
      ackIds = [],
      ackDeadlineSeconds = 0,
    } = (body ?? {}) as {
      readonly maxMessages?: number;
      readonly ackIds?: readonly string[];
      readonly ackDeadlineSeconds?: number;
    };
    switch (name) {
      case "subscriptions.get":
        return subscription.description;
      case "subscriptions.pull":
        if (!(maxMessages > 0)) violations.push("pull: maxMessages is not positive");
        return pull(subscription, maxMessages, response);
      case "subscriptions.acknowledge":
        if (ackIds.length === 0) violations.push("acknowledge: ackIds is empty");
        for (const delivery of held(subscription, ackIds)) subscription.deliveries.delete(delivery);
        return {};
      default:
        if (ackDeadlineSeconds < 0 || ackDeadlineSeconds > 600) violations.push("modifyAckDeadline: beyond 600 s");
        for (const delivery of held(subscription, ackIds)) {
          delivery.deadline = performance.now() + ackDeadlineSeconds * 1000;
        }
        return {};
    }
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const what = `${request.method} ${request.url}`;
    const send = (status: number, value: object): void =>
      void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    const error = (code: number, status: string): void => send(code, { error: { code, message: status, status } });
    const failure = failures.find(({ path }) => request.url?.includes(path));
    if (failure !== undefined) {
      failures.splice(failures.indexOf(failure), 1);
      return error(failure.status, "FAILED");
    }
    if (token !== null && request.headers.authorization !== `Bearer ${token}`) return error(401, "UNAUTHENTICATED");
    const found = findMethod(request);
    if (found === null) {
      violations.push(`${what}: no such method`);
      return error(404, "NOT_FOUND");
    }
    const { name, resource, method } = found;
    const body = (text === "" ? null : JSON.parse(text)) as never;
    if (method.request !== undefined) check(method.request.$ref, body, what);
    else if (body !== null) violations.push(`${what}: has a body`);
    const value = await answerCall(name, resource, body, response);
    if (value === null) return error(404, "NOT_FOUND");
    const plain = JSON.parse(JSON.stringify(value)) as object;
    check(method.response.$ref, plain, `answer to ${what}`);
    send(200, plain);
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((cause: unknown) => {
      violations.push(String(cause));
      response.destroy();
    });
  });
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    violations,
    get token() {
      return token;
    },
    set token(next) {
      token = next;
    },
    fail: (path, ...statuses) => void failures.push(...statuses.map((status) => ({ path, status }))),
    numFailures: () => failures.length,
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      server.closeAllConnections();
      await closed.promise;
    },
  };
}

/** `v1/{+name}:verb` of the discovery document. */
function findMethod(request: IncomingMessage): { name: string; resource: string; method: Method } | null {
  const [, resource = "", verb = ""] =
    /^\/v1\/(projects\/[^/]+\/(?:topics|subscriptions)\/[^/:]+)(:\w+)?$/.exec(request.url ?? "") ?? [];
  const kind = resource.split("/")[2];
  const found = Object.entries(discovery.methods).find(
    ([name, { httpMethod, path }]) =>
      name.startsWith(`${kind}.`) && httpMethod === request.method && path.replace(/^v1\/\{\+\w+\}/, "") === verb,
  );
  return found === undefined ? null : { name: found[0], resource, method: found[1] };
}
