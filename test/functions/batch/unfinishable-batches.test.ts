/**
 * Batches whose results are lost, damaged or rejected: they answer lines again, wait, or fail, but always with a
 * message.
 */
import { appendFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { isFinal } from "../../../functions/batch/batch-record.ts";
import type { BatchObject } from "../../../functions/batch/batch-record.ts";
import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import { StorageError } from "../../../functions/storage/object-store.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { createBatchServer, dayMs, linesOf, startMs, tenant } from "../../support/service/batch-server.ts";
import type { BatchServer } from "../../support/service/batch-server.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const prompts = ["a", "b", "c", "d"];
const allIds = prompts.map((prompt) => `id-${prompt}`);

let folder: TemporaryFolder;
let numStores = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

interface SetUp {
  readonly path?: string;
  readonly isSegmented?: boolean;
  readonly script?: (prompt: string) => Script;
  /** Called before each write; the write throws its error. */
  readonly beforeWrite?: (key: string, text: string) => Promise<void>;
}

function setUp({
  path = join(folder.path, `store-${numStores++}`),
  isSegmented = false,
  script,
  beforeWrite,
}: SetUp = {}) {
  const real = createFolderObjectStore(path);
  const store = {
    ...real,
    async write(key: string, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>) {
      const bytes: Uint8Array[] = [];
      for await (const chunk of chunks) bytes.push(chunk);
      await beforeWrite?.(key, Buffer.concat(bytes).toString());
      return real.write(key, bytes);
    },
  };
  const clock = { nowMs: startMs };
  const logger = createLogger({ level: "error", write() {} });
  const logs = isSegmented
    ? createSegmentedResultLogs({ store, flushMs: 5, retryMs: { first: 2, most: 4 }, maxNumAttempts: 2, logger })
    : createFolderResultLogs(join(path, "results"), logger);
  const server = createBatchServer({ store, logs, clock, ...(script && { script }) });
  return { ...server, path, clock };
}

async function whenEnded({ batches }: BatchServer, id: string): Promise<BatchObject> {
  const find = async (): Promise<BatchObject> => (await batches.find(tenant, id))!;
  await expect.poll(async () => isFinal((await find()).status)).toBe(true);
  return find();
}

async function expectComplete(server: BatchServer, id: string): Promise<void> {
  const batch = await whenEnded(server, id);
  expect(batch).toMatchObject({ status: "completed", request_counts: { total: 4, completed: 4, failed: 0 } });
  const ids = (await server.results(batch.output_file_id)).map((line) => line.custom_id!);
  expect(ids.toSorted()).toEqual(allIds);
  expect(batch.error_file_id).toBeNull();
}

/** Files of results that are being collected. */
async function resultPaths(path: string): Promise<string[]> {
  const names = await readdir(join(path, "results")).catch(() => []);
  return names.map((name) => join(path, "results", name));
}

const isFinalizing = (key: string, text: string): boolean =>
  key.startsWith("batches/") && text.includes('"finalizing"');

describe.for([false, true])("with results in segments: %s", (isSegmented) => {
  test("a batch whose stored results are lost before it ends answers these lines again", async () => {
    let hasLost = false;
    const server = setUp({
      isSegmented,
      async beforeWrite(key, text) {
        if (hasLost || !isFinalizing(key, text)) return;
        hasLost = true;
        const [path] = await resultPaths(server.path);
        const lines = (await readFile(path!, "utf8")).split("\n");
        await writeFile(path!, lines.slice(1).join("\n"));
      },
    });
    const id = await server.queueLines(linesOf(prompts));
    await server.batches.start();
    await expectComplete(server, id);
    expect(hasLost).toBe(true);
    expect(server.engine.requests.length).toBeGreaterThan(4);
    await server.stop();
  });

  test("a batch whose results are lost each time fails after five attempts, with the results that exist", async () => {
    const server = setUp({
      isSegmented,
      async beforeWrite(key, text) {
        if (isFinalizing(key, text)) for (const path of await resultPaths(server.path)) await rm(path);
      },
    });
    const id = await server.queueLines(linesOf(prompts));
    await server.batches.start();
    const batch = await whenEnded(server, id);
    expect(batch).toMatchObject({
      status: "failed",
      completed_at: null,
      errors: { data: [{ code: "server_error", message: expect.stringContaining("in 5 attempts") as string }] },
    });
    expect(server.engine.requests).toHaveLength(5 * prompts.length);
    expect((await server.results(batch.output_file_id)).length).toBe(batch.request_counts.completed);
    await server.stop();
  });

  test.for([
    ["cut off", (text: string) => text.slice(0, -20)],
    ["changed in the middle", (text: string) => text.replace('"custom_id"', '"custom":')],
    ["answering lines that the input does not have", (text: string) => text.replace('"id-a"', '"id-z"')],
    ["doubled", (text: string) => text + text],
    ["another thing", () => "hello\n"],
    ["empty", () => ""],
  ] as const)("a batch whose results are %s, completes with each line once", async ([, damage]) => {
    const first = setUp({ isSegmented, script: (prompt) => (prompt === "d" ? [hang] : ["x"]) });
    const id = await first.queueLines(linesOf(prompts));
    await first.batches.start();
    await expect.poll(async () => (await first.batches.find(tenant, id))?.request_counts.completed).toBe(3);
    await first.stop();
    for (const path of await resultPaths(first.path)) await writeFile(path, damage(await readFile(path, "utf8")));
    const next = setUp({ isSegmented, path: first.path });
    await next.batches.start();
    await expectComplete(next, id);
    await next.stop();
  });
});

test("a store that rejects results for longer than any attempt lasts only delays a batch", async () => {
  let numRefused = 0;
  const server = setUp({
    isSegmented: true,
    async beforeWrite(key) {
      if (key.startsWith("results/") && numRefused++ < 30) throw new StorageError("Writing", new Error("refused"));
    },
  });
  const id = await server.queueLines(linesOf(prompts));
  await server.batches.start();
  await expectComplete(server, id);
  expect(numRefused).toBeGreaterThan(30);
  expect(server.log()).toContain("A job failed; it will be retried.");
  await server.stop();
});

test("a batch whose results the store still rejects when it has expired fails in the end, and keeps its log", async () => {
  const server = setUp({
    async beforeWrite(key) {
      if (key.startsWith("contents/") && key.endsWith(outputId)) {
        throw new StorageError("Writing", new Error("refused"));
      }
    },
  });
  let outputId = "none";
  const id = await server.queueLines(linesOf(prompts));
  const state = JSON.parse(await readFile(join(server.path, `batches/all.${id}`), "utf8")) as { outputFileId: string };
  outputId = state.outputFileId;
  await server.batches.start();
  await expect.poll(() => server.log().match(/A job failed/g)?.length ?? 0).toBeGreaterThan(6);
  expect((await server.batches.find(tenant, id))?.status).toBe("finalizing");
  server.clock.nowMs += dayMs;
  const batch = await whenEnded(server, id);
  expect(batch).toMatchObject({ status: "failed", output_file_id: null, error_file_id: null });
  expect(batch.errors?.data).toMatchObject([{ code: "server_error" }]);
  await expect.poll(() => readdir(join(server.path, "unfinished"))).toEqual([]);
  const [log] = await resultPaths(server.path);
  expect((await readFile(log!, "utf8")).split("\n")).toHaveLength(5);
  await server.stop();
});

test("a batch whose state is damaged while it waits continues as it was created", async () => {
  const first = setUp({ script: (prompt) => (prompt === "d" ? [hang] : ["x"]) });
  const id = await first.queueLines(linesOf(prompts));
  await first.batches.start();
  await expect.poll(async () => (await first.batches.find(tenant, id))?.request_counts.completed).toBe(3);
  await first.stop();
  await writeFile(join(first.path, `batches/all.${id}`), "{");
  const next = setUp({ path: first.path });
  await next.batches.start();
  await expectComplete(next, id);
  expect(next.engine.requests).toHaveLength(1);
  await next.stop();
});

test("a batch with only damaged records is skipped, logged once, and does not delay others", async () => {
  const path = join(folder.path, "unreadable");
  const first = setUp({ path });
  const [damaged, good] = [await first.queueLines(linesOf(prompts)), await first.queueLines(linesOf(prompts))];
  const marker = (await readdir(join(path, "unfinished"))).find((name) => name.includes(damaged))!;
  const whole = await readFile(join(path, "unfinished", marker), "utf8");
  for (const name of [`batches/all.${damaged}`, `unfinished/${marker}`]) await appendFile(join(path, name), "}");
  await first.batches.start();
  await expectComplete(first, good);
  const numLooks = 5;
  for (let look = 0; look < numLooks; look++)
    await expect.poll(() => readdir(join(path, "unfinished"))).toEqual([marker]);
  expect(first.log().match(/is damaged and is skipped/g)).toHaveLength(2);
  await first.stop();
  // A repaired record is processed by the next server.
  await writeFile(join(path, "unfinished", marker), whole);
  const next = setUp({ path });
  await next.batches.start();
  await expectComplete(next, damaged);
  await next.stop();
});

test("a batch whose input is damaged fails with the reason", async () => {
  const server = setUp();
  const id = await server.queueLines(linesOf(prompts));
  const batch = await server.batches.find(tenant, id);
  await writeFile(join(server.path, `files/all.${batch?.input_file_id}`), "{");
  await server.batches.start();
  expect(await whenEnded(server, id)).toMatchObject({
    status: "failed",
    errors: { data: [{ code: "input_file_damaged", param: "input_file_id" }] },
  });
  await server.stop();
});
