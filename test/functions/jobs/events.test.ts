/**
 * Events that platforms push: CloudEvents 1.0.2 (cloudevents/spec, HTTP binding), messages of Pub/Sub push subscriptions
 * (cloud.google.com/pubsub/docs/push) and events of EventBridge (AWS's event structure), as read in November 2026.
 */
import { CreateBucketCommand, GetObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { resultKey } from "../../../functions/jobs/sinks/s3-result-sink.ts";
import { createLastingAnswers, endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startOidcIssuer } from "../../support/servers/oidc-issuer.ts";
import type { OidcIssuer } from "../../support/servers/oidc-issuer.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

const chat = { messages: [{ role: "user", content: "Hello?" }], max_tokens: 4, temperature: 0 };
const secret = "push-secret";

let s3: S3Server;
let issuer: OidcIssuer;
let service: RunningService;
let base: Record<string, string>;

beforeAll(async () => {
  [s3, issuer] = await Promise.all([startS3Server(), startOidcIssuer()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "jobs" }));
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
  base = {
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    MAX_NUM_SEQS: "4",
    SERVED_MODEL_NAME: "tiny",
    JOB_PUSH_SECRET: secret,
    ...withLastingAnswers,
  };
  service = await startService({
    ...base,
    MAX_BODY_BYTES: "2MiB",
    API_KEY: "api-key",
    JOB_PUSH_ISSUER: issuer.url,
    JOB_PUSH_AUDIENCE: "fovea",
    JOB_PUSH_SENDERS: "pusher@project.iam.gserviceaccount.com,system:serviceaccount:jobs:broker",
    JOB_RESULTS: "s3://jobs/results",
    JOB_MAX_DELIVERIES: "3",
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await issuer[Symbol.asyncDispose]();
  await s3.stop();
});

interface Pushed {
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Headers without a value are not sent. */
async function push(
  { body, headers = {} }: Pushed,
  options: { readonly to?: RunningService; readonly auth?: Record<string, string>; readonly signal?: AbortSignal } = {},
): Promise<Response> {
  const { to = service, auth = { authorization: `Bearer ${secret}` }, signal } = options;
  return fetch(`${to.baseUrl}/events`, {
    method: "POST",
    headers: { "content-type": "application/json", ...auth, ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...(signal && { signal }),
  });
}

async function stored(jobId: string): Promise<string | null> {
  try {
    const { Body } = await s3.client.send(new GetObjectCommand({ Bucket: "jobs", Key: resultKey("results", jobId) }));
    return (await Body?.transformToString()) ?? null;
  } catch (error) {
    if (error instanceof Error && error.name === "NoSuchKey") return null;
    throw error;
  }
}

let numIds = 0;
const nextId = (): string => String(9_000_000_000 + numIds++);
const base64 = (text: string | Buffer): string => Buffer.from(text).toString("base64");
const subscription = "projects/p/subscriptions/jobs";

function pubSub(message: unknown, id: string, more: object = {}): Pushed {
  const data = base64(typeof message === "string" || Buffer.isBuffer(message) ? message : JSON.stringify(message));
  const attributes = { origin: "test" };
  return {
    body: {
      message: { data, messageId: id, message_id: id, publishTime: "2026-11-22T06:00:00Z", attributes },
      subscription,
      ...more,
    },
  };
}

const attributes = (id: string, more: object = {}): Record<string, string> => {
  return { specversion: "1.0", id, source: "/jobs", type: "job.created", ...more };
};
const binary = (id: string, more: object = {}): Record<string, string> =>
  Object.fromEntries(Object.entries(attributes(id, more)).map(([name, value]) => [`ce-${name}`, value]));
const structured = { "content-type": "application/cloudevents+json; charset=utf-8" };

function eventBridge(detail: unknown, id: string): Pushed {
  const rest = { account: "123456789012", time: "2026-11-22T06:00:00Z", region: "eu-west-1", resources: [] };
  return { body: { version: "0", id, "detail-type": "Job Created", source: "jobs", ...rest, detail } };
}

const kinds: readonly (readonly [string, (message: object, id: string) => Pushed, (id: string) => string])[] = [
  ["a CloudEvent in binary mode", (body, id) => ({ body, headers: binary(id) }), (id) => `/jobs#${id}`],
  [
    "a CloudEvent in binary mode with percent-encoded attributes",
    (body, id) => ({ body, headers: binary(id, { source: "/j%C3%B6bs%20%22a%22" }) }),
    (id) => `/j\u00f6bs "a"#${id}`,
  ],
  [
    "a CloudEvent in structured mode",
    (data, id) => ({ body: { ...attributes(id), datacontenttype: "application/json", data }, headers: structured }),
    (id) => `/jobs#${id}`,
  ],
  [
    "a CloudEvent with Base64",
    (data, id) => ({ body: { ...attributes(id), data_base64: base64(JSON.stringify(data)) }, headers: structured }),
    (id) => `/jobs#${id}`,
  ],
  [
    "a CloudEvent whose data is the text of JSON",
    (data, id) => ({ body: { ...attributes(id), data: JSON.stringify(data) }, headers: structured }),
    (id) => `/jobs#${id}`,
  ],
  [
    "a Pub/Sub message from Eventarc",
    (message, id) => ({
      body: pubSub(message, "7").body,
      headers: binary(id, {
        type: "google.cloud.pubsub.topic.v1.messagePublished",
        source: "//pubsub.googleapis.com/t",
      }),
    }),
    (id) => `//pubsub.googleapis.com/t#${id}`,
  ],
  ["a message of a Pub/Sub push subscription", pubSub, (id) => `${subscription}/${id}`],
  ["an event of EventBridge", eventBridge, (id) => id],
];

test("a CloudEvent without a content type is JSON, as the SDK for Python sends it in binary mode", async () => {
  const response = await fetch(`${service.baseUrl}/events`, {
    method: "POST",
    headers: { ...binary(nextId()), authorization: `Bearer ${secret}` },
    // Bytes, because fetch gives a text a content type.
    body: Buffer.from(JSON.stringify(chat)),
  });
  expect([response.status, await response.json()]).toMatchObject([200, { response: { status_code: 200 } }]);
});

describe("events", () => {
  test.for(kinds)("answers %s when the result is stored", async ([, wrap, jobIdOf]) => {
    const id = nextId();
    const response = await push(wrap(chat, id));
    const text = await response.text();
    expect([response.status, await stored(jobIdOf(id))]).toEqual([200, text]);
    expect(JSON.parse(text)).toMatchObject({
      id: jobIdOf(id),
      custom_id: jobIdOf(id),
      response: { status_code: 200, body: { object: "chat.completion", model: "tiny" } },
      error: null,
    });
  });

  test.for(kinds)("delivers why the job in %s is refused", async ([name, wrap, jobIdOf]) => {
    const id = nextId();
    const response = await push(wrap({ ...chat, body: 7 }, id));
    const text = await response.text();
    // Pub/Sub would send the message again.
    const status = name.includes("subscription") ? 200 : 400;
    expect([response.status, await stored(jobIdOf(id))]).toEqual([status, text]);
    expect(JSON.parse(text)).toMatchObject({
      response: null,
      error: { message: "body must be an object.", param: "body" },
    });
  });

  test("answers a CloudEvent with a CloudEvent, and takes none of its own", async () => {
    const id = nextId();
    const response = await push({ body: chat, headers: binary(id, { source: "/a%20b" }) });
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "ce-specversion": "1.0",
      "ce-id": `/a%20b#${id}`,
      "ce-source": "/events",
      "ce-type": "fovea.job.finished",
      "content-type": "application/json",
    });
    const own = binary(nextId(), { type: response.headers.get("ce-type") });
    expect((await push({ body: JSON.parse(await response.text()) as object, headers: own })).status).toBe(204);
  });

  test("keeps events apart whose sources and ids look the same together", async () => {
    const event = (source: string, id: string) =>
      push({ body: { ...attributes(id, { source }), data: { ...chat, custom_id: source } }, headers: structured });
    const answers = await Promise.all(
      [await event("a#b", "c"), await event("a", "b#c"), await event("a%23b", "c"), await event("#a", "b#c")].map(
        async (response) => JSON.parse(await response.text()) as { readonly custom_id: string },
      ),
    );
    expect(answers.map(({ custom_id: id }) => id)).toEqual(["a#b", "a", "a%23b", "#a"]);
  });

  test("answers an event whose id is no Unicode", async () => {
    const response = await push({ body: { ...attributes("\ud800"), data: chat }, headers: structured });
    expect([response.status, response.headers.get("ce-id")]).toEqual([200, "/jobs#%EF%BF%BD"]);
  });

  test("stores the answer of a request that the model refuses", async () => {
    const id = nextId();
    const response = await push(eventBridge({ ...chat, model: "other" }, id));
    expect(response.status).toBe(200);
    expect(JSON.parse((await stored(id)) ?? "")).toMatchObject({
      response: { status_code: 404, body: { error: { code: "model_not_found" } } },
    });
  });

  const noJobs: readonly (readonly [string, string | Buffer, string])[] = [
    ["nothing", "", "invalid_json"],
    ["text", "hello", "invalid_json"],
    ["a list", "[]", "invalid_json"],
    ["bytes", "\u0000\ufffd", "invalid_json"],
    ["in another encoding", Buffer.from('{"prompt":"\u00e9"}', "latin1"), "invalid_json"],
    ["many objects", `{"messages":[${"{},".repeat(100_000)}{}]}`, "json_too_complex"],
    ["an address that no job may name", JSON.stringify({ ...chat, webhook: "http://10.0.0.1/" }), "invalid_value"],
  ];
  test.for(noJobs)("delivers the refusal of a Pub/Sub message that is %s", async ([, data, code]) => {
    const id = nextId();
    const response = await push(pubSub(data, id));
    expect(response.status).toBe(200);
    expect(JSON.parse((await stored(`${subscription}/${id}`)) ?? "")).toMatchObject({
      response: null,
      error: { code },
    });
  });

  test("leaves the limit of deliveries to the subscription, which counts those that found no room", async () => {
    const response = await push(pubSub(chat, nextId(), { deliveryAttempt: 4 }));
    expect(await response.json()).toMatchObject({ response: { status_code: 200 } });
  });

  const noEvents: readonly (readonly [string, Pushed, number, RegExp])[] = [
    ["a bare request", { body: chat }, 400, /is no event/],
    ["no JSON", { body: "{", headers: binary("1") }, 400, /not valid JSON/],
    ["an old CloudEvent", { body: chat, headers: binary("1", { specversion: "0.3" }) }, 400, /specversion must be 1.0/],
    ["a CloudEvent without an id", { body: chat, headers: binary("") }, 400, /id must not be empty/],
    [
      "a CloudEvent without a type",
      { body: { specversion: "1.0", id: "1", source: "a" } },
      400,
      /type must be a string/,
    ],
    ["a broken Base64", { body: { ...attributes("1"), data_base64: "*" } }, 400, /data_base64 must be Base64/],
    ["a message without an id", { body: { message: {}, subscription } }, 400, /message.messageId must be a string/],
    ["text", { body: "hello", headers: { ...binary("1"), "content-type": "text/plain" } }, 400, /application\/json/],
    ["10 MB", pubSub("a".repeat(10_000_000), "1"), 413, /the limit is 2097152/],
  ];
  test.for(noEvents)("refuses %s with the reason", async ([, pushed, status, reason]) => {
    const response = await push(pushed);
    const { error } = (await response.json()) as { readonly error: { readonly message: string } };
    expect(response.status).toBe(status);
    expect(error.message).toMatch(reason);
  });
});

describe("deliveries", () => {
  test("computes an event once that is delivered five times at once, and again later", async () => {
    const pushed = pubSub({ ...chat, max_tokens: 40 }, nextId());
    const together = await Promise.all(Array.from({ length: 5 }, () => push(pushed)));
    const texts = await Promise.all([...together, await push(pushed)].map((response) => response.text()));
    expect(new Set(texts).size).toBe(1);
  });

  test("finishes the job of a sender that does not wait; the next delivery gets its answer", async () => {
    await using answers = await createLastingAnswers();
    const id = nextId();
    const pushed = eventBridge({ ...chat, ...answers.fields }, id);
    const leaving = new AbortController();
    const first = push(pushed, { signal: leaving.signal });
    await expect.poll(async () => (await metric("vllm:num_requests_running")) > 0).toBe(true);
    leaving.abort();
    await expect(first).rejects.toThrow(/aborted/);
    await answers.finish();
    const response = await push(pushed);
    expect([response.status, await response.text()]).toEqual([200, await stored(id)]);
  });

  async function metric(name: string): Promise<number> {
    const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
    return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? ([\\d.]+)`, "m").exec(text)?.[1] ?? 0);
  }

  test("asks for another delivery of what it could not finish before it shut down", async () => {
    const other = await startService({ ...base, JOB_RESULTS: "s3://jobs/results" });
    const ids = Array.from({ length: 6 }, nextId);
    const pushes = ids.map((id) => push(eventBridge({ ...chat, ...endless }, id), { to: other }));
    await expect
      .poll(
        async () =>
          (await (await fetch(`${other.baseUrl}/metrics`)).text()).match(/^vllm:num_requests_running\S* (\d+)/m)?.[1],
      )
      .not.toBe("0");
    await other[Symbol.asyncDispose]();
    const responses = await Promise.all(pushes);
    expect(responses.map(({ status }) => status)).toEqual(ids.map(() => 503));
    expect(responses[0]?.headers.get("retry-after")).toBe("1");
    expect(await Promise.all(ids.map(stored))).toEqual(ids.map(() => null));
  });

  test("gives a refusal to the sender where results go nowhere else", async () => {
    await using other = await startService(base);
    const answers = await Promise.all([
      push(pubSub("no job", "1"), { to: other }),
      push(pubSub(chat, "2"), { to: other }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([400, 200]);
    expect(await answers[0].json()).toMatchObject({ error: { code: "invalid_json" } });
  });
});

describe("senders", () => {
  const subject = "system:serviceaccount:jobs:broker";
  const senders: readonly (readonly [string, () => Record<string, string>, number])[] = [
    ["nothing", () => ({}), 401],
    ["another secret", () => ({ authorization: "Bearer guess" }), 401],
    ["the API key of requests", () => ({ authorization: "Bearer api-key" }), 401],
    ["the secret in X-Api-Key", () => ({ "x-api-key": secret }), 200],
    ["an ID token of an allowed address", () => bearer({}), 200],
    ["an ID token of an allowed subject", () => bearer({ sub: subject, email: undefined }), 200],
    ["an ID token of another address", () => bearer({ email: "other@project.iam.gserviceaccount.com" }), 403],
    ["an ID token of an address that is not verified", () => bearer({ email_verified: false }), 403],
    ["an ID token for another audience", () => bearer({ aud: "https://other.example" }), 401],
    ["an ID token that has expired", () => bearer({ exp: 1_700_000_000 }), 401],
  ];
  const bearer = (claims: object) => ({ authorization: `Bearer ${issuer.sign({ claims: { ...claims } })}` });

  test.for(senders)("answers a sender with %s", async ([, auth, status]) => {
    const response = await push(pubSub(chat, nextId()), { auth: auth() });
    expect(response.status).toBe(status);
  });

  test("accepts no API key of requests, and no events without a setting for them", async () => {
    const { JOB_PUSH_SECRET: _, ...without } = base;
    await using other = await startService(without);
    expect((await push(pubSub(chat, "1"), { to: other })).status).toBe(404);
  });
});
