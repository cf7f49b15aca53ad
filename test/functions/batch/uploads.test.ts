/** Uploads of files as forms. */
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;
let service: RunningService;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({ BATCH_STORE: join(folder.path, "store"), BATCH_MAX_FILE_BYTES: "1MiB" });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

/** All files of the store. */
async function contents(): Promise<string[]> {
  const entries = await readdir(folder.path, { recursive: true, withFileTypes: true });
  return entries.flatMap((entry) => (entry.isFile() ? [join(entry.parentPath, entry.name)] : [])).toSorted();
}

async function send(fields: Readonly<Record<string, string | Blob>>): Promise<Response> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return fetch(`${service.baseUrl}/v1/files`, { method: "POST", body: form });
}

test.for<[string, Record<string, string | Blob>, number, string]>([
  ["of another purpose", { purpose: "fine-tune", file: new Blob(["x"]) }, 400, "purpose"],
  ["of no purpose", { file: new Blob(["x"]) }, 400, "purpose"],
  ["without a file", { purpose: "batch" }, 400, "file"],
  ["whose file is a text", { purpose: "batch", file: "x" }, 400, "file"],
  [
    "whose lifetime has no anchor",
    { purpose: "batch", file: new Blob(["x"]), "expires_after[seconds]": "3600" },
    400,
    "expires_after.anchor",
  ],
  [
    "that lives less than an hour",
    { purpose: "batch", file: new Blob(["x"]), "expires_after[anchor]": "created_at", "expires_after[seconds]": "60" },
    400,
    "expires_after.seconds",
  ],
  ["with another lifetime", { purpose: "batch", file: new Blob(["x"]), expires_after: "3600" }, 400, "expires_after"],
  ["over the limit", { purpose: "batch", file: new Blob(["x".repeat(1024 ** 2 + 1)]) }, 413, "file"],
  ["far over the limit", { purpose: "batch", file: new Blob(["x".repeat(8 * 1024 ** 2)]) }, 413, "file"],
])("an upload %s is rejected and leaves nothing behind", async ([, fields, status, param]) => {
  const before = await contents();
  const response = await send(fields);
  expect(response.status).toBe(status);
  expect(await response.json()).toMatchObject({ error: { param } });
  expect(await contents()).toEqual(before);
});

test("an upload of exactly the limit is accepted, with its purpose before or after it", async () => {
  const file = new Blob(["x".repeat(1024 ** 2)]);
  for (const fields of [
    { purpose: "batch", file },
    { file, purpose: "batch" },
  ]) {
    const response = await send(fields);
    expect(await response.json()).toMatchObject({ bytes: 1024 ** 2, object: "file", filename: "blob" });
  }
});

test("an upload without a name is named like its field", async () => {
  for (const disposition of ['name="file"; filename=""', 'name="file"']) {
    const head = `Content-Disposition: form-data; ${disposition}\r\nContent-Type: application/octet-stream`;
    const purpose = 'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch';
    const body = `--xyz\r\n${head}\r\n\r\nx\r\n--xyz\r\n${purpose}\r\n--xyz--\r\n`;
    const headers = { "content-type": "multipart/form-data; boundary=xyz" };
    const response = await fetch(`${service.baseUrl}/v1/files`, { method: "POST", body, headers });
    expect(await response.json()).toMatchObject({ bytes: 1, filename: "file" });
  }
});

test("an upload of two files is rejected and leaves nothing behind", async () => {
  const before = await contents();
  const form = new FormData();
  form.append("purpose", "batch");
  for (const name of ["a.jsonl", "b.jsonl"]) form.append("file", new Blob(["x"]), name);
  const response = await fetch(`${service.baseUrl}/v1/files`, { method: "POST", body: form });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    error: { code: "invalid_form", message: expect.stringContaining("contains file twice") },
  });
  expect(await contents()).toEqual(before);
});

test("an upload that is not a form is rejected", async () => {
  const response = await fetch(`${service.baseUrl}/v1/files`, { method: "POST", body: "{}" });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: "unsupported_media_type" } });
});

/** Sends the beginning of a form whose announced length has `numMissingBytes` more. */
function sendHalf(numMissingBytes: number): Socket {
  const { hostname, port } = new URL(service.baseUrl);
  const socket = connect(Number(port), hostname);
  const body = [
    "--xyz",
    'Content-Disposition: form-data; name="file"; filename="a.jsonl"',
    "Content-Type: application/jsonl",
    "",
    "x".repeat(100_000),
  ].join("\r\n");
  const head = [
    "POST /v1/files HTTP/1.1",
    "Host: x",
    "Content-Type: multipart/form-data; boundary=xyz",
    `Content-Length: ${body.length + numMissingBytes}`,
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
  return socket;
}

test("an upload whose form breaks off is rejected and leaves nothing behind", async () => {
  const before = await contents();
  const socket = sendHalf(0);
  const [answer] = (await once(socket, "data")) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 400 [\s\S]*"code":"invalid_form"/);
  expect(await contents()).toEqual(before);
  socket.destroy();
});

test("an upload whose client disconnects leaves nothing behind", async () => {
  const before = await contents();
  const socket = sendHalf(1000);
  await expect.poll(contents).not.toEqual(before);
  socket.destroy();
  await expect.poll(contents).toEqual(before);
});
