/** BATCH_MAX_STORE_BYTES, for every kind of upload. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const endpoint = "/v1/completions";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

function clientOf({ baseUrl }: RunningService): OpenAI {
  return new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
}

async function upload(text: string, to: OpenAI): Promise<string> {
  const file = await toFile(Buffer.from(text), "in.jsonl");
  return (await to.files.create({ file, purpose: "batch" })).id;
}

test("a full store accepts no more files until some are deleted", async () => {
  await using small = await startService({ BATCH_STORE: join(folder.path, "small"), BATCH_MAX_STORE_BYTES: "10KiB" });
  const to = clientOf(small);
  const id = await upload("x".repeat(8000), to);
  await expect(upload("x".repeat(8000), to)).rejects.toMatchObject({
    status: 507,
    code: "storage_full",
    param: "file",
  });
  await to.files.delete(id);
  expect(await upload("x".repeat(8000), to)).toMatch(/^file-/);
});

/** A form whose file is sent in chunks, without an announced length. */
function sendChunks(to: RunningService, numChunks: number, numBytes: number): Promise<Response> {
  async function* body(): AsyncGenerator<Uint8Array> {
    const disposition = 'Content-Disposition: form-data; name="file"; filename="a.jsonl"';
    yield Buffer.from(
      `--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\n${disposition}\r\n\r\n`,
    );
    for (let chunk = 0; chunk < numChunks; chunk++) yield Buffer.alloc(numBytes, "x");
    yield Buffer.from("\r\n--xyz--\r\n");
  }
  return fetch(`${to.baseUrl}/v1/files`, {
    method: "POST",
    headers: { "content-type": "multipart/form-data; boundary=xyz" },
    body: Readable.toWeb(Readable.from(body())) as ReadableStream,
    duplex: "half",
  });
}

async function totalBytes(store: string): Promise<number> {
  const names = await readdir(join(store, "contents")).catch(() => []);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(store, "contents", name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

test("a chunked upload that exceeds the limit of the store is rejected while it arrives, and leaves nothing", async () => {
  const store = join(folder.path, "chunked");
  await using small = await startService({ BATCH_STORE: store, BATCH_MAX_STORE_BYTES: "1MiB" });
  const response = await sendChunks(small, 320, 64 * 1024);
  expect(response.status).toBe(507);
  expect(await response.json()).toMatchObject({ error: { code: "storage_full", param: "file" } });
  expect(await readdir(join(store, "contents"))).toEqual([]);
  const next = await sendChunks(small, 16, 64 * 1024);
  expect(next.status).toBe(200);
  expect(await totalBytes(store)).toBe(1024 ** 2);
});

test("of thirty concurrent uploads, as many are accepted as the store has room for", async () => {
  const store = join(folder.path, "parallel");
  await using small = await startService({ BATCH_STORE: store, BATCH_MAX_STORE_BYTES: "1MiB" });
  const responses = await Promise.all(Array.from({ length: 30 }, () => sendChunks(small, 10, 10 * 1024)));
  const statuses = responses.map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([200, 507]));
  const numTaken = statuses.filter((status) => status === 200).length;
  expect(await totalBytes(store)).toBe(numTaken * 100 * 1024);
  expect(await totalBytes(store)).toBeLessThanOrEqual(1024 ** 2);
  // Nothing of the rejected ones is still reserved.
  while ((await totalBytes(store)) + 100 * 1024 <= 1024 ** 2)
    expect((await sendChunks(small, 10, 10 * 1024)).status).toBe(200);
  expect((await sendChunks(small, 10, 10 * 1024)).status).toBe(507);
});

test("a batch gets its results although the store is full, and then uploads and batches are rejected", async () => {
  const store = join(folder.path, "full");
  await using small = await startService({ BATCH_STORE: store, BATCH_MAX_STORE_BYTES: "1KiB" });
  const to = clientOf(small);
  const lines = Array.from({ length: 8 }, (_, index) => {
    const body = { prompt: "a", max_tokens: 1 };
    return JSON.stringify({ custom_id: `line-${index}`, method: "POST", url: endpoint, body });
  });
  const input_file_id = await upload(lines.join("\n"), to);
  const batch = await to.batches.create({ input_file_id, endpoint, completion_window: "24h" });
  await expect.poll(async () => (await to.batches.retrieve(batch.id)).status).toBe("completed");
  expect(await totalBytes(store)).toBeGreaterThan(1024);
  await expect(upload("x", to)).rejects.toMatchObject({ status: 507, code: "storage_full" });
  const another = () => to.batches.create({ input_file_id, endpoint, completion_window: "24h" });
  await expect(another()).rejects.toMatchObject({
    status: 507,
    code: "storage_full",
    message: expect.stringMatching(
      /All files together have \d+ bytes; the limit is 1024, which BATCH_MAX_STORE_BYTES sets\. Delete/,
    ),
  });
  await to.files.delete((await to.batches.retrieve(batch.id)).output_file_id!);
  expect((await another()).status).toBe("validating");
});
