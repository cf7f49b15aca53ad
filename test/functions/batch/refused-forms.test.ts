/** Forms that are refused before their end, as bytes on a connection. */
import { connect } from "node:net";
import type { Socket } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const filePart = '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc\r\n';
const lastRequest = "GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

let service: RunningService;
let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({
    BATCH_STORE: join(folder.path, "store"),
    BATCH_MAX_FILE_BYTES: "1MiB",
    BATCH_MAX_STORE_BYTES: "2MiB",
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

const emptyPart = "--b\r\n--b--\r\n";

test.for([
  ["without headers", [emptyPart]],
  ["without headers, twice ended", ["--b\r\n--b--\r\n--b--\r\n"]],
  ["without headers, twice ended, in pieces", ["--b\r", "\n--b--\r\n--b--\r\n"]],
  ["without headers, with much behind its end", ["--b\r", `\n--b--\r\n--b--\r\n${"x".repeat(300_000)}`]],
  [
    "without headers, behind a field",
    ['--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n', emptyPart],
  ],
] as const)("a form with a part %s is answered", async ([, pieces]) => {
  const answers = await text(await upload(pieces, { next: lastRequest }));
  expect(answers).toMatch(/^HTTP\/1.1 400 [^]*"code":"(missing_file|invalid_form)"[^]*HTTP\/1.1 200 /);
});

test("ignores bytes after the end of a form, however they are cut", async () => {
  const purpose = '--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n';
  const form = `${purpose}${filePart}--b--\r\n`;
  const all = `${form}${filePart}--b--\r\n`;
  for (const cut of [form.length - 4, form.length - 1, form.length, form.length + 3]) {
    const answers = await text(await upload([all.slice(0, cut), all.slice(cut)], { next: lastRequest }));
    expect(answers.match(/HTTP\/1.1 \d+|"bytes":\d+/g)).toEqual(["HTTP/1.1 200", '"bytes":3', "HTTP/1.1 200"]);
  }
});

test("a form that is refused before its end leaves the connection to the next request", async () => {
  const form = `${filePart.repeat(2)}${"x".repeat(900_000)}\r\n--b--\r\n`;
  const answers = await text(await upload([form], { next: lastRequest }));
  expect(answers.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 400", "HTTP/1.1 200"]);
});

test("a form that is refused and never ends closes the connection, and the answer says so", async () => {
  const answer = await text(await upload([filePart.repeat(2)], { length: 10_000 }));
  expect(answer).toMatch(/^HTTP\/1.1 400 [^]*\r\nconnection: close\r\n/i);
});

test("a form that is longer than a file may be and than the store is refused for its own length", async () => {
  const answer = await text(await upload(["--b\r\n"], { length: 2 ** 35 }));
  expect(answer).toMatch(/^HTTP\/1.1 413 [^]*"code":"file_too_large"/);
});

test("a client that writes all before it reads sees the 413 of a file in chunks", async () => {
  const { hostname, port } = new URL(service.baseUrl);
  const socket = connect(Number(port), hostname);
  const head = `POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const form = `${filePart}${"x".repeat(24 * 1024 ** 2)}`.replace("\r\nabc", "\r\n");
  await new Promise((resolve) => socket.write(`${head}${form.length.toString(16)}\r\n${form}\r\n0\r\n\r\n`, resolve));
  expect(await text(socket)).toMatch(/^HTTP\/1.1 413 [^]*"code":"file_too_large"/);
});

interface UploadOptions {
  /** As announced; that of the pieces unless given. */
  readonly length?: number;
  /** Sent behind the form. */
  readonly next?: string;
}

/** Sends each piece in a packet of its own. */
async function upload(pieces: readonly string[], { length, next = "" }: UploadOptions): Promise<Socket> {
  const { hostname, port } = new URL(service.baseUrl);
  const socket = connect(Number(port), hostname);
  socket.setNoDelay(true);
  const head = [
    "POST /v1/files HTTP/1.1",
    "Host: a",
    "Content-Type: multipart/form-data; boundary=b",
    `Content-Length: ${length ?? pieces.join("").length}`,
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\n`);
  for (const piece of [...pieces, next]) await new Promise((resolve) => socket.write(piece, resolve));
  return socket;
}
