/** Requests that never reach the application: Node's HTTP parser rejects them, or their target is not a URL. */
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createListener } from "../../../functions/app.ts";
import { MAX_PIPELINED_REQUESTS, openServer } from "../../../functions/http/server.ts";
import type { ConnectionTimeouts, OpenServer } from "../../../functions/http/server.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { openSocket, readAnswer, requestHead } from "../../support/requests/raw-connection.ts";
import type { RawAnswer } from "../../support/requests/raw-connection.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";
import type { TestApp } from "../../support/service/test-app.ts";

const testApp = createTestApp();
let server: OpenServer;

async function open(app: TestApp, timeouts: Partial<ConnectionTimeouts> = {}): Promise<OpenServer> {
  return openServer({ host: "127.0.0.1", port: 0 }, Promise.resolve(createListener(app.app)), { timeouts });
}

const urlOf = ({ port }: OpenServer): string => `http://127.0.0.1:${port}`;

beforeAll(async () => {
  server = await open(testApp);
});

afterAll(() => server.close());

/** The answer to the written text, after which the server closes the connection. */
async function answerTo(text: string, to: OpenServer = server): Promise<RawAnswer> {
  const socket = await openSocket(urlOf(to));
  socket.write(text);
  return readAnswer(socket);
}

const host = "Host: localhost";
const close = "Connection: close";

test.for<[string, readonly string[], number, string]>([
  ["no Host", ["GET /health HTTP/1.1", close], 400, "invalid_request"],
  ["two Hosts", ["GET /health HTTP/1.1", host, host, close], 400, "invalid_request"],
  ["two Hosts in HTTP/1.0", ["GET /health HTTP/1.0", host, "Host: a"], 400, "invalid_request"],
  ["an empty Host", ["GET /health HTTP/1.1", "Host:", close], 400, "invalid_request"],
  ["a Host that is no name", ["GET /health HTTP/1.1", "Host: a b", close], 400, "invalid_request"],
  ["a Host with a path", ["GET /health HTTP/1.1", "Host: a/b", close], 400, "invalid_request"],
  ["an asterisk", ["OPTIONS * HTTP/1.1", host, close], 400, "invalid_request"],
  ["backslashes", ["GET /\\..\\.. HTTP/1.1", host, close], 400, "invalid_request"],
  ["an absolute URL that is none", ["GET http://[ HTTP/1.1", host, close], 400, "invalid_request"],
  ["a relative target", ["GET health HTTP/1.1", host], 400, "invalid_request"],
  ["no HTTP at all", ["\x16\x03\x01 hello"], 400, "invalid_request"],
  ["an unknown method", ["FETCH /health HTTP/1.1", host], 400, "invalid_request"],
  ["an unknown version", ["GET /health HTTP/3.7", host], 400, "invalid_request"],
  ["HTTP/2", ["PRI * HTTP/2.0", "", "SM", ""], 400, "invalid_request"],
  ["a header without a colon", ["GET /health HTTP/1.1", host, "broken"], 400, "invalid_request"],
  ["a length that is no number", ["POST /v1/files HTTP/1.1", host, "Content-Length: x"], 400, "invalid_request"],
  [
    "a length beside chunks",
    ["POST /v1/files HTTP/1.1", host, "Content-Length: 5", "Transfer-Encoding: chunked"],
    400,
    "invalid_request",
  ],
  ["headers that are too long", ["GET /health HTTP/1.1", host, `X: ${"x".repeat(20_000)}`], 431, "headers_too_large"],
  ["a target that is too long", [`GET /${"x".repeat(20_000)} HTTP/1.1`, host], 431, "headers_too_large"],
  ["CONNECT", ["CONNECT a:1 HTTP/1.1", host], 405, "method_not_allowed"],
  ["an expectation", ["POST /v1/completions HTTP/1.1", host, "Expect: more", close], 417, "expectation_failed"],
])("a request with %s is answered in OpenAI's format", async ([, lines, status, code]) => {
  const answer = await answerTo([...lines, "", ""].join("\r\n"));
  expect(answer.status).toBe(status);
  expect(answer.headers).toMatchObject({ "content-type": "application/json", connection: "close" });
  expect(JSON.parse(answer.body)).toEqual({
    error: { message: expect.stringMatching(/^[A-Z].*\.$/), type: "invalid_request_error", param: null, code },
  });
  expect((await fetch(`${urlOf(server)}/health`)).status).toBe(200);
});

test("a health check of HTTP/1.0 needs no Host", async () => {
  const { status, headers } = await answerTo("GET /health HTTP/1.0\r\n\r\n");
  expect(status).toBe(200);
  expect(headers).toMatchObject({ connection: "close" });
});

test("64 requests may wait on a connection; one more closes it, and none behind it is begun", async () => {
  let numBegun = 0;
  const answers: (() => void)[] = [];
  const other = await openServer(
    { host: "127.0.0.1", port: 0 },
    Promise.resolve((_request, response) => {
      numBegun += 1;
      answers.push(() => response.end("done"));
    }),
  );
  const requests = (count: number): string => "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(count);
  const patient = await openSocket(urlOf(other));
  patient.write(requests(MAX_PIPELINED_REQUESTS - 1));
  patient.write(`GET / HTTP/1.1\r\nHost: a\r\n${close}\r\n\r\n`);
  const answer = readAnswer(patient);
  await expect.poll(() => numBegun).toBe(MAX_PIPELINED_REQUESTS);
  for (const give of answers) give();
  expect((await answer).body.split("HTTP/1.1 200 OK")).toHaveLength(MAX_PIPELINED_REQUESTS);

  numBegun = 0;
  const greedy = await openSocket(urlOf(other));
  const isClosed = new Promise((resolve) => greedy.once("close", resolve));
  greedy.write(requests(10_000));
  await isClosed;
  expect(numBegun).toBe(MAX_PIPELINED_REQUESTS);
  await other.close();
});

test("a malformed body chunk is answered instead of the request", async () => {
  const head = ["POST /v1/completions HTTP/1.1", host, "Content-Type: application/json", "Transfer-Encoding: chunked"];
  const answer = await answerTo([...head, "", "5", '{"pro', "zz", ""].join("\r\n"));
  expect(answer.status).toBe(400);
  expect(JSON.parse(answer.body)).toMatchObject({ error: { code: "invalid_request" } });
  await expect.poll(() => testApp.bodies.numBodies).toBe(0);
});

test("malformed bytes after a request do not replace its answer", async () => {
  const held = createTestApp({ script: ["a", hang] });
  const other = await open(held);
  const socket = await openSocket(urlOf(other));
  const answer = readAnswer(socket);
  const body = JSON.stringify({ ...chatBody, stream: true });
  socket.write(`${requestHead(body.length)}${body}`);
  await expect.poll(() => held.engine.numRunning).toBe(1);
  socket.write("GARBAGE\r\n\r\n");
  const { body: written } = await answer;
  expect(written).not.toContain("invalid_request");
  await expect.poll(() => held.service.numRequests).toBe(0);
  await other.close();
});

test.for([
  ["sends nothing", ""],
  ["sends a part of a request line", "POST /v1/com"],
  ["sends a part of its headers", "POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-"],
  ["sends a part of its body", requestHead(100) + "{"],
])("a connection that %s is answered with 408 and closed", async ([, text]) => {
  const impatient = await open(testApp, { headers: 50, request: 100, check: 10 });
  const { status, body } = await answerTo(text!, impatient);
  expect(status).toBe(408);
  expect(JSON.parse(body)).toMatchObject({ error: { code: "request_timeout", type: "invalid_request_error" } });
  await expect.poll(() => testApp.bodies.numBodies).toBe(0);
  await impatient.close();
});

test("a connection may idle between two requests for longer than the limit for headers", async () => {
  const headers = 1000;
  const impatient = await open(testApp, { headers, check: 10 });
  const socket = await openSocket(urlOf(impatient));
  for (const _ of [1, 2]) {
    socket.write("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
    const [answer] = (await once(socket, "data")) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 200 /);
    await new Promise((resolve) => setTimeout(resolve, 1.5 * headers));
  }
  expect(socket.closed).toBe(false);
  await impatient.close();
});

test("a request that expects 100 Continue gets it, and its answer", async () => {
  const body = JSON.stringify(chatBody);
  const socket = await openSocket(urlOf(server));
  socket.write(requestHead(body.length, { headers: ["Expect: 100-continue", close] }));
  const [first] = (await once(socket, "data")) as [Buffer];
  expect(first.toString()).toBe("HTTP/1.1 100 Continue\r\n\r\n");
  socket.write(body);
  expect((await readAnswer(socket)).status).toBe(200);
});
