/** Segments over a real folder with writes that can be rejected. */
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { responseLine } from "../../../functions/batch/result-line.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import type { ResultLog } from "../../../functions/batch/result-log.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import { StorageError } from "../../../functions/storage/object-store.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const MEBIBYTE = 1024 ** 2;
const going = new AbortController().signal;

let folder: TemporaryFolder;
let numStores = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

function setUp({ flushMs = 1_000_000, firstMs = 1 } = {}) {
  const path = join(folder.path, `store-${numStores++}`);
  const store = createFolderObjectStore(path);
  /** Keys of all writes, including rejected ones. */
  const writes: string[] = [];
  const refusal = { num: 0 };
  let log = "";
  const logs = createSegmentedResultLogs({
    store: {
      ...store,
      async write(key, chunks) {
        writes.push(key);
        if (refusal.num-- > 0) throw new StorageError("Writing", new Error("refused"));
        return store.write(key, chunks);
      },
    },
    flushMs,
    retryMs: { first: firstMs, most: 1_000_000 },
    maxNumAttempts: 4,
    logger: createLogger({ level: "debug", write: (line) => (log += line) }),
  });
  return { path, logs, writes, refusal, log: () => log, open: (signal = going) => logs.open("job", signal) };
}

function answer(customId: string, text = ""): ResultLine {
  return responseLine(customId, { statusCode: 200, requestId: "request", body: { text } });
}

async function customIds(log: ResultLog): Promise<(string | null)[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of log.read()) chunks.push(chunk);
  const lines = Buffer.concat(chunks).toString().split("\n").slice(0, -1);
  return lines.map((line) => (JSON.parse(line) as ResultLine).custom_id);
}

test("a rejected segment is retried under its key, and later lines follow in the next one", async () => {
  const { open, refusal, writes, log } = setUp({ firstMs: 50 });
  const results = await open();
  refusal.num = 2;
  await results.append(answer("a"));
  const flushed = results.flush();
  await expect.poll(() => writes.length).toBeGreaterThan(0);
  await results.append(answer("b"));
  await flushed;
  await results.flush();
  expect(new Set(writes.slice(0, 3)).size).toBe(1);
  expect(writes).toHaveLength(4);
  expect(await customIds(results)).toEqual(["a", "b"]);
  expect(log().match(/Results cannot be stored now/g)).toHaveLength(1);
  await results.close();
});

test("segments have no character that ends a line in other languages but the ends of their lines", async () => {
  const { open } = setUp();
  const results = await open();
  const text = "a\u0085\u2028\u2029b";
  await results.append(answer(text, text));
  await results.flush();
  const chunks: Uint8Array[] = [];
  for await (const chunk of results.read()) chunks.push(chunk);
  expect(Buffer.concat(chunks).toString()).not.toMatch(/[\u0085\u2028\u2029]/);
  expect(await customIds(results)).toEqual([text]);
  await results.close();
});

test("lines count as stored when they are stored, not when they are appended", async () => {
  const { open } = setUp();
  const results = await open();
  await results.append(answer("a"));
  await results.append(responseLine("b", { statusCode: 400, requestId: "request", body: {} }));
  expect(results.numStored).toEqual({ numSucceeded: 0, numFailed: 0 });
  await results.flush();
  expect(results.numStored).toEqual({ numSucceeded: 1, numFailed: 1 });
  await results.close();
  const again = await open();
  expect(again.numStored).toEqual({ numSucceeded: 1, numFailed: 1 });
  expect(again.done.customIds).toEqual(new Set(["a", "b"]));
  await again.close();
});

test("a log that cannot store a segment fails after its attempts, and accepts no more lines", async () => {
  const { open, refusal, writes } = setUp();
  const results = await open();
  refusal.num = Infinity;
  await results.append(answer("a"));
  await expect(results.flush()).rejects.toThrow(StorageError);
  expect(writes).toHaveLength(4);
  await expect(results.append(answer("b"))).rejects.toThrow("refused");
  await expect(results.flush()).rejects.toThrow("refused");
  await results.close();
  const again = await open();
  expect(again.done.customIds.size).toBe(0);
  await again.close();
});

test("a log that must stop does not wait for its next attempt", async () => {
  const { open, refusal, writes } = setUp({ firstMs: 1_000_000 });
  const stopping = new AbortController();
  const results = await open(stopping.signal);
  refusal.num = Infinity;
  await results.append(answer("a"));
  const flushed = results.flush();
  flushed.catch(() => {});
  await expect.poll(() => writes.length).toBe(1);
  stopping.abort();
  await expect(flushed).rejects.toThrow("refused");
  expect(writes).toHaveLength(2);
  await results.close();
});

test("collected lines are stored when a log closes whose batch failed for another reason", async () => {
  const { open } = setUp();
  const results = await open();
  await results.append(answer("a"));
  await results.close();
  const again = await open();
  expect(again.done.customIds).toEqual(new Set(["a"]));
  await again.close();
});

test("with many lines collected, further lines wait until the store accepts them", async () => {
  const { open, refusal } = setUp({ firstMs: 20 });
  const results = await open();
  refusal.num = 2;
  let numTaken = 0;
  const appends = Array.from({ length: 6 }, async (_, index) => {
    await results.append(answer(`line-${index}`, "x".repeat(MEBIBYTE)));
    numTaken += 1;
  });
  await Promise.all(appends.slice(0, 3));
  expect(numTaken).toBe(3);
  await Promise.all(appends);
  expect(results.numStored.numSucceeded).toBeGreaterThanOrEqual(4);
  await results.close();
});

test("damaged lines are skipped and logged, so that they are answered again", async () => {
  const { path, open, log } = setUp();
  const results = await open();
  for (const id of ["a", "b", "c"]) await results.append(answer(id));
  await results.close();
  const [name] = await readdir(join(path, "results"));
  const file = join(path, "results", name!);
  await writeFile(file, (await readFile(file, "utf8")).replace('"custom_id":"b"', '"custom_id":"b'));
  const again = await open();
  expect(again.done.customIds).toEqual(new Set(["a", "c"]));
  expect(log()).toContain('"numDamaged":1');
  await again.append(answer("b"));
  await again.close();
  expect((await readdir(join(path, "results"))).toSorted()).toHaveLength(2);
});

test("all segments of two writers are read, and no segment replaces another", async () => {
  const { open } = setUp();
  const [first, second] = [await open(), await open()];
  await first.append(answer("a"));
  await second.append(answer("b"));
  await Promise.all([first.flush(), second.flush()]);
  expect(new Set(await customIds(first))).toEqual(new Set(["a", "b"]));
  await Promise.all([first.close(), second.close()]);
});
