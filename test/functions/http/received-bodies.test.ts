import { once } from "node:events";
import type { Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";

import { BodyIntake, roomForBodies } from "../../../functions/http/body-intake.ts";
import { HttpError } from "../../../functions/http/errors.ts";
import { receiveBody } from "../../../functions/http/received-body.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { pauseProcess } from "../../support/pause-process.ts";
import { openSocket, readAnswer, requestHead } from "../../support/requests/raw-connection.ts";
import { chatBody, createTestApp, serveApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";

const chatText = JSON.stringify(chatBody);

async function start(options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const served = await serveApp(testApp);
  const ask = (headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${served.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: chatText,
    });
  return { ...testApp, ask, baseUrl: served.baseUrl, [Symbol.asyncDispose]: () => served[Symbol.asyncDispose]() };
}

/** Sends the head and the first bytes of a body and then nothing. */
async function beginBody(baseUrl: string, options?: Parameters<typeof requestHead>[1]): Promise<Socket> {
  const socket = await openSocket(baseUrl);
  socket.write(requestHead(chatText.length, options) + chatText.slice(0, 5));
  return socket;
}

describe("bodies that never end", () => {
  test("do not block other requests", async () => {
    await using server = await start({ maxNumRequests: 2 });
    const sockets = await Promise.all(Array.from({ length: 50 }, () => beginBody(server.baseUrl)));
    await expect.poll(() => server.bodies.numBodies).toBe(50);
    expect(server.service.numRequests).toBe(0);
    await expect.poll(() => server.bodies.numHeldBytes).toBe(250);
    const metrics = await (await fetch(`${server.baseUrl}/metrics`)).text();
    expect(metrics).toMatch(/^fovea_http_bodies_in_flight\{.*\} 50$/m);
    expect(metrics).toMatch(/^fovea_http_body_bytes\{.*\} 250$/m);
    const answers = [await server.ask(), await server.ask(), await server.ask()];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    for (const socket of sockets) socket.destroy();
    await expect.poll(() => server.bodies.numBodies).toBe(0);
  });

  test("end with 408 and a closed connection when no byte arrives for too long", async () => {
    await using server = await start({ bodyIdleTimeoutMs: 50 });
    const { status, headers, body } = await readAnswer(await beginBody(server.baseUrl));
    expect(status).toBe(408);
    expect(headers).toMatchObject({ connection: "close", "content-type": "application/json" });
    expect(JSON.parse(body)).toEqual({
      error: {
        message: expect.stringMatching(
          /^No byte of the body arrived for 0\.05 s, after \d bytes\. BODY_IDLE_TIMEOUT_SECONDS/,
        ),
        type: "invalid_request_error",
        param: null,
        code: "request_timeout",
      },
    });
    expect(server.bodies.numBodies).toBe(0);
    expect(server.log.filter(({ level }) => level === "error")).toEqual([]);
    expect((await server.ask()).status).toBe(200);
  });

  test("end with 503 at once when the service drains, which does not wait for them", async () => {
    await using server = await start();
    const socket = await beginBody(server.baseUrl);
    await expect.poll(() => server.bodies.numBodies).toBe(1);
    const answer = readAnswer(socket);
    expect(await server.service.drain(1e9)).toBe(true);
    const { status, headers, body } = await answer;
    expect(status).toBe(503);
    expect(headers).toMatchObject({ connection: "close", "retry-after": "2" });
    expect(JSON.parse(body)).toMatchObject({ error: { code: "shutting_down" } });
  });

  test("are not read when the request has no key", async () => {
    await using server = await start({ config: { apiKeys: ["secret"] } });
    expect((await readAnswer(await beginBody(server.baseUrl))).status).toBe(401);
    expect(server.bodies.numBodies).toBe(0);
    const headers = ["Authorization: Bearer secret"];
    const known = await beginBody(server.baseUrl, { headers });
    await expect.poll(() => server.bodies.numBodies).toBe(1);
    known.destroy();
    await expect.poll(() => server.bodies.numBodies).toBe(0);
  });

  test("are not read when the service is full", async () => {
    await using full = await start({ maxNumRequests: 1, script: [hang] });
    const running = full.ask();
    await expect.poll(() => full.service.numRequests).toBe(1);
    const socket = await beginBody(full.baseUrl);
    const [answer] = (await once(socket, "data")) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 429 /);
    await full.service.drain(0);
    await running;
    socket.destroy();
  });
});

test("the limit of requests holds for bodies that arrive at the same time", async () => {
  await using server = await start({ maxNumRequests: 1, script: [hang] });
  const sockets = await Promise.all([1, 2, 3].map(() => beginBody(server.baseUrl)));
  await expect.poll(() => server.bodies.numBodies).toBe(3);
  for (const socket of sockets) socket.write(chatText.slice(5));
  const statuses: string[] = [];
  for (const socket of sockets) socket.on("data", (data: Buffer) => statuses.push(data.toString().slice(9, 12)));
  await expect.poll(() => statuses).toEqual(["429", "429"]);
  expect([server.service.numRequests, server.bodies.numBodies]).toEqual([1, 0]);
  for (const socket of sockets) socket.destroy();
  await expect.poll(() => server.service.numRequests).toBe(0);
  await expect.poll(() => server.engine.numAborted).toBe(1);
});

describe("the deadlines of a body", () => {
  test("end a body that trickles without falling silent", async () => {
    const drip = (): Request =>
      requestOf(async (send) => {
        for (let count = 0; count < 1e6; count++) {
          await new Promise((resolve) => setTimeout(resolve, 10));
          send("x");
        }
      });
    const read = receiveBody(drip(), { idleTimeoutMs: 60_000, rateGraceMs: 50 });
    await expect(drain(read)).rejects.toMatchObject({
      status: 408,
      message: expect.stringMatching(/500 bytes a second/),
    });
  });

  test("do not count a pause of the process, in which the rest may arrive", async () => {
    await using server = await start({ bodyIdleTimeoutMs: 200 });
    const socket = await openSocket(server.baseUrl);
    socket.write(requestHead(chatText.length, { headers: ["Connection: close"] }) + chatText.slice(0, 5));
    // Looks in every turn, because the deadline is near. From here on, timers run before sockets are read.
    do await turn();
    while (server.bodies.numHeldBytes < 5);
    socket.write(chatText.slice(5));
    pauseProcess(500);
    expect((await readAnswer(socket)).status).toBe(200);
  });

  test("pause while its reader is busy", async () => {
    const idleTimeoutMs = 20;
    const read = receiveBody(
      requestOf((send) => ["a", "b", "c"].forEach(send)),
      { idleTimeoutMs },
    );
    let text = "";
    for await (const chunk of read) {
      text += Buffer.from(chunk).toString();
      await new Promise((resolve) => setTimeout(resolve, 3 * idleTimeoutMs));
    }
    expect(text).toBe("abc");
  });

  test("are overridden by the signal's reason", async () => {
    const controller = new AbortController();
    const read = drain(
      receiveBody(
        requestOf(() => new Promise(() => {})),
        { idleTimeoutMs: 60_000, signal: controller.signal },
      ),
    );
    controller.abort(new Error("enough"));
    await expect(read).rejects.toThrow("enough");
  });
});

describe("bodies of requests that are not answered yet", () => {
  const MEBIBYTE = 1024 ** 2;

  function createIntake() {
    const drainSignal = new AbortController().signal;
    return new BodyIntake({ maxBodyBytes: MEBIBYTE, idleTimeoutMs: 60_000, drainSignal, maxKeptBytes: 500_000 });
  }

  const requestWith = (numBytes: number): Request =>
    new Request("http://a/", { method: "POST", body: JSON.stringify("a".repeat(numBytes - 2)) });

  test("leave no room for another large one, until one is answered", async () => {
    const intake = createIntake();
    const first = requestWith(300_000);
    await intake.receiveJson(first, MEBIBYTE);
    const second = intake.receiveJson(requestWith(300_000), MEBIBYTE);
    await expect(second).rejects.toMatchObject({ status: 429, code: "queue_full", headers: { "Retry-After": "2" } });
    // A question without pictures.
    expect(await intake.receiveJson(requestWith(60_000), MEBIBYTE)).toMatchObject({ kind: "parsed" });
    intake.forget(first);
    expect(await intake.receiveJson(requestWith(300_000), MEBIBYTE)).toMatchObject({ kind: "parsed" });
  });

  test("may be longer than the room if they are alone", async () => {
    expect(await createIntake().receiveJson(requestWith(900_000), MEBIBYTE)).toMatchObject({ kind: "parsed" });
  });

  test.for([true, false])("are forgotten with their answer, which is a stream: %s", async (stream) => {
    const going = Promise.withResolvers<void>();
    const { post, engine } = createTestApp({ script: ["a", going.promise, "b"], maxKeptBytes: 100_000 });
    const long = { ...chatBody, stream, user: "a".repeat(70_000) };
    const first = post("/v1/chat/completions", long).then((response) => response.text());
    await expect.poll(() => engine.numRunning).toBe(1);
    expect((await post("/v1/chat/completions", long)).status).toBe(429);
    going.resolve();
    await first;
    expect((await post("/v1/chat/completions", long)).status).toBe(200);
  });

  test("are rejected before they arrive if their length is announced", async () => {
    const intake = createIntake();
    await intake.receiveJson(requestWith(300_000), MEBIBYTE);
    const never = new ReadableStream();
    const headers = { "content-length": "300000" };
    const announced = new Request("http://a/", { method: "POST", body: never, headers, duplex: "half" });
    await expect(intake.receiveJson(announced, MEBIBYTE)).rejects.toMatchObject({ status: 429 });
  });
});

describe("when there is no room for another body", () => {
  interface Sender {
    readonly send: (text: string) => void;
    readonly end: () => void;
    readonly outcome: Promise<unknown>;
  }

  function createIntake({ maxNumBodies = 3, maxBodyBytes = 16 * 1024 ** 2 } = {}) {
    const clock = { now: 0 };
    const drainSignal = new AbortController().signal;
    const intake = new BodyIntake({
      maxBodyBytes,
      idleTimeoutMs: 60_000,
      drainSignal,
      maxNumBodies,
      now: () => clock.now,
    });
    const open = (): Sender => {
      let controller!: ReadableStreamDefaultController<Uint8Array>;
      const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
      const request = new Request("http://a/", { method: "POST", body, duplex: "half" });
      const outcome = intake.receiveJson(request, maxBodyBytes).then(
        ({ kind }) => kind,
        (error: HttpError) => error.status,
      );
      return { send: (text) => controller.enqueue(Buffer.from(text)), end: () => controller.close(), outcome };
    };
    return { intake, clock, open };
  }

  test("the body that received the fewest bytes lately is evicted", async () => {
    const { intake, clock, open } = createIntake();
    const senders = [open(), open(), open()];
    // The second sender sent most of all, but long ago.
    senders[1]!.send(`[${" ".repeat(9_999)}`);
    await expect.poll(() => intake.numHeldBytes).toBe(10_000);
    clock.now = 20_000;
    senders[0]!.send(`[${" ".repeat(99)}`);
    senders[2]!.send(`[${" ".repeat(99)}`);
    await expect.poll(() => intake.numHeldBytes).toBe(10_200);
    const fast = open();
    fast.send("[]");
    fast.end();
    expect(await fast.outcome).toBe("parsed");
    expect(await senders[1]!.outcome).toBe(408);
    for (const sender of [senders[0], senders[2]]) {
      sender!.send("]");
      sender!.end();
      expect(await sender!.outcome).toBe("parsed");
    }
    expect(intake.numBodies).toBe(0);
  });

  test("a new body is refused with 503 while all others are younger than a second", async () => {
    const { intake, clock, open } = createIntake();
    const senders = [open(), open(), open()];
    clock.now = 999;
    expect(await open().outcome).toBe(503);
    clock.now = 1000;
    const late = open();
    expect(await senders[0]!.outcome).toBe(408);
    expect(intake.numBodies).toBe(3);
    for (const sender of [...senders.slice(1), late]) {
      sender.send("{}");
      sender.end();
      expect(await sender.outcome).toBe("parsed");
    }
  });

  test("in memory, a silent body that holds much is evicted, and a short body is always accepted", async () => {
    const mebibyte = 1024 ** 2;
    const { intake, clock, open } = createIntake({ maxNumBodies: 100 });
    const hoarders = Array.from({ length: 8 }, open);
    for (const hoarder of hoarders) hoarder.send(`[${" ".repeat(16 * mebibyte - 2)}`);
    await expect.poll(() => intake.numHeldBytes).toBe(8 * (16 * mebibyte - 1));
    const short = open();
    short.send("[]");
    short.end();
    expect(await short.outcome).toBe("parsed");
    const early = open();
    early.send(" ".repeat(mebibyte));
    expect(await early.outcome).toBe(503);
    clock.now = 60_000;
    const late = open();
    late.send(`[${" ".repeat(mebibyte)}]`);
    late.end();
    expect(await late.outcome).toBe("parsed");
    // All are as silent as the first.
    expect(await hoarders[0]!.outcome).toBe(408);
    for (const hoarder of hoarders.slice(1)) {
      hoarder.send("]");
      hoarder.end();
      expect(await hoarder.outcome).toBe("parsed");
    }
    expect(intake.numBodies).toBe(0);
    await intake.close();
  });
});

describe("a compressed body", () => {
  const encodings = { gzip: gzipSync, "x-gzip": gzipSync, deflate: deflateSync, br: brotliCompressSync };

  test.for(Object.entries(encodings))("in %s is answered like a plain one", async ([encoding, compress]) => {
    const { app } = createTestApp();
    const response = await app.request("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", "content-encoding": encoding.toUpperCase() },
      body: compress(chatText),
    });
    expect(response.status).toBe(200);
  });

  const plain = Buffer.from(chatText);
  test.for<[string, string, Uint8Array, number, string]>([
    ["plain JSON that is called gzip", "gzip", plain, 400, "invalid_encoding"],
    ["plain JSON that is called br", "br", plain, 400, "invalid_encoding"],
    ["gzip that breaks off", "gzip", gzipSync(plain).subarray(0, 20), 400, "invalid_encoding"],
    ["gzip without a byte", "gzip", new Uint8Array(), 400, "invalid_encoding"],
    ["gzip with a wrong checksum", "gzip", Uint8Array.from(gzipSync(plain)).fill(0, -8), 400, "invalid_encoding"],
    ["gzip that is called br", "br", gzipSync(plain), 400, "invalid_encoding"],
    ["gzip of no JSON", "gzip", gzipSync("{"), 400, "invalid_json"],
    ["an encoding of another kind", "zstd", plain, 415, "unsupported_encoding"],
    ["two encodings", "gzip, gzip", gzipSync(gzipSync(plain)), 415, "unsupported_encoding"],
  ])("that is %s is refused", async ([, encoding, body, status, code]) => {
    const { app, engine } = createTestApp();
    const response = await app.request("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", "content-encoding": encoding },
      body: Buffer.from(body),
    });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code, type: "invalid_request_error", param: null } });
    expect(response.headers.get("accept-encoding")).toBe(status === 415 ? "gzip, deflate, br" : null);
    expect(engine.requests).toHaveLength(0);
  });

  test("is not decoded beyond the limit, even while its sender holds the rest back", async () => {
    await using server = await start();
    const bomb = gzipSync(Buffer.alloc(100 * 1024 ** 2, " "));
    expect(bomb.length).toBeLessThan(110_000);
    const sent = bomb.subarray(0, 50_000);
    const socket = await openSocket(server.baseUrl);
    const answer = readAnswer(socket);
    socket.write(requestHead(99_000, { headers: ["Content-Encoding: gzip"] }));
    socket.write(sent);
    const { status, body } = await answer;
    expect(status).toBe(413);
    expect(JSON.parse(body)).toMatchObject({ error: { message: expect.stringMatching(/the limit is 100000/) } });
    expect(server.bodies.numBodies).toBe(0);
    expect((await server.ask()).status).toBe(200);
  });

  test("is refused when it is broken, even while its sender holds the rest back", async () => {
    await using server = await start();
    const socket = await openSocket(server.baseUrl);
    socket.write(requestHead(1000, { headers: ["Content-Encoding: gzip"] }));
    socket.write(plain);
    expect((await readAnswer(socket)).status).toBe(400);
    expect(server.bodies.numBodies).toBe(0);
  });
});

test.for([
  ["application/json; charset=UTF-8", 200],
  ['application/json;charset="utf8"', 200],
  ["application/json; charset=us-ascii", 200],
  ["application/json; charset=latin1", 415],
  ["application/json; charset=utf-16", 415],
] as const)("content type %s is answered with %i", async ([contentType, status]) => {
  const response = await createTestApp().post("/v1/chat/completions", chatBody, { "content-type": contentType });
  expect(response.status).toBe(status);
  const { error } = (await response.json()) as { error?: { code: string } };
  expect(error?.code).toBe(status === 415 ? "unsupported_charset" : undefined);
});

test("a long body is parsed on a thread without a change", async () => {
  const { post, engine, bodies } = createTestApp({ config: { maxBodyBytes: 8 * 1024 ** 2 } });
  const content = `${'\u{1F600} \\ " 漢\n'.repeat(100_000)}end`;
  const text = `{"__proto__": {"stream": true}, "messages": [{"role": "user", "content": ${JSON.stringify(content)}}]}`;
  const response = await post("/v1/chat/completions", text);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toMatch(/json/);
  expect(engine.requests[0]!.prompt).toMatchObject({ kind: "chat", messages: [{ role: "user", content }] });
  const broken = await post("/v1/chat/completions", `${text.slice(0, -1)},}`);
  expect(broken.status).toBe(400);
  expect(await broken.json()).toMatchObject({
    error: { message: expect.stringMatching(/not valid JSON at character \d+/) },
  });
  await bodies.close();
});

function requestOf(write: (send: (text: string) => void) => Promise<void> | void): Request {
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      void (async () => {
        try {
          await write((text) => controller.enqueue(Buffer.from(text)));
          controller.close();
        } catch {
          // Its reader has given up.
        }
      })();
    },
  });
  return new Request("http://a/", { method: "POST", body, duplex: "half" });
}

async function drain(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of chunks) expect(chunk.byteLength).toBeGreaterThan(0);
}

describe("the room for bodies", () => {
  const MEBIBYTE = 2 ** 20;

  test.for([
    { heap: 4288, longest: 32, room: 256 },
    { heap: 259, longest: 32, room: 129 },
    { heap: 259, longest: 1, room: 64 },
    { heap: 259, longest: 200, room: 200 },
  ])("is $room MiB for bodies of $longest MiB beside a heap of $heap MiB", ({ heap, longest, room }) => {
    expect(Math.floor(roomForBodies(longest * MEBIBYTE, heap * MEBIBYTE) / MEBIBYTE)).toBe(room);
  });
});
