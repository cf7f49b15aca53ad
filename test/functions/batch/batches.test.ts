/** Batches over a scripted engine, a clock that the test sets, and a store that may fail. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import { readText, StorageError } from "../../../functions/storage/object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { createBatchServer, dayMs, linesOf, startMs, tenant } from "../../support/service/batch-server.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;
let numStores = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

interface SetUp {
  readonly path?: string;
  readonly nowMs?: number;
  readonly script?: (prompt: string) => Script;
  readonly isSegmented?: boolean;
  readonly lookMs?: number;
  readonly tickMs?: number;
  /** For writes and reads, by key. */
  readonly isBroken?: (key: string) => boolean;
}

/** One server process, from the batches' point of view. */
function setUp({
  path = join(folder.path, `store-${numStores++}`),
  nowMs = startMs,
  isSegmented = false,
  isBroken = () => false,
  script,
  ...intervals
}: SetUp = {}) {
  const store = failing(createFolderObjectStore(path), isBroken);
  const logger = createLogger({ level: "error", write() {} });
  const logs = isSegmented
    ? createSegmentedResultLogs({ store, flushMs: 10, retryMs: { first: 5, most: 20 }, maxNumAttempts: 3, logger })
    : createFolderResultLogs(join(path, "results"), logger);
  const server = createBatchServer({
    store,
    logs,
    clock: { nowMs },
    ...(script && { script }),
    ...intervals,
  });
  return {
    ...server,
    path,
    store,
    queue: (prompts: readonly string[]) => server.queueLines(linesOf(prompts)),
    status: async (batchId: string) => (await server.batches.find(tenant, batchId))?.status,
  };
}

function failing(store: ObjectStore, isBroken: (key: string) => boolean): ObjectStore {
  const check = (key: string): void => {
    if (isBroken(key)) throw new StorageError("Reaching the store", new Error("it is away"));
  };
  return {
    ...store,
    async write(key, chunks) {
      check(key);
      return store.write(key, chunks);
    },
    async read(key) {
      check(key);
      return store.read(key);
    },
  };
}

test("a batch that is too old ends with its results, and lists each line without one", async () => {
  const first = setUp({ script: (prompt) => (prompt === "c" ? [hang] : ["x"]) });
  const id = await first.queue(["a", "b", "c", "d"]);
  await first.batches.start();
  await expect.poll(async () => (await first.batches.find(tenant, id))?.request_counts.completed).toBe(3);
  await first.stop();
  expect(await first.status(id)).toBe("in_progress");

  const second = setUp({ path: first.path, nowMs: startMs + dayMs });
  await second.batches.start();
  await expect.poll(() => second.status(id)).toBe("expired");
  expect(second.engine.requests).toEqual([]);
  const expired = await second.batches.find(tenant, id);
  expect(expired).toMatchObject({
    expired_at: (startMs + dayMs) / 1000,
    completed_at: null,
    request_counts: { total: 4, completed: 3, failed: 0 },
  });
  const answers = await second.results(expired?.output_file_id);
  expect(answers.map((line) => line.custom_id!).toSorted()).toEqual(["id-a", "id-b", "id-d"]);
  expect(await second.results(expired?.error_file_id)).toMatchObject([
    { custom_id: "id-c", response: null, error: { code: "batch_expired", line: 3 } },
  ]);
  await second.stop();
});

test("a batch that expires before it is validated lists its lines, or fails with those that are invalid", async () => {
  const first = setUp();
  const good = await first.queue(["a", "b"]);
  const bad = await first.queueLines([
    { custom_id: "id-a", body: { prompt: "a" } },
    { custom_id: "id-a", body: {} },
  ]);
  const second = setUp({ path: first.path, nowMs: startMs + dayMs });
  await second.batches.start();
  await expect.poll(() => second.status(good)).toBe("expired");
  expect(second.engine.requests).toEqual([]);
  const expired = await second.batches.find(tenant, good);
  expect(expired).toMatchObject({ in_progress_at: null, request_counts: { total: 2, completed: 0, failed: 0 } });
  expect(await second.results(expired?.error_file_id)).toMatchObject([
    { custom_id: "id-a", response: null, error: { code: "batch_expired", line: 1 } },
    { custom_id: "id-b", response: null, error: { code: "batch_expired", line: 2 } },
  ]);
  await expect.poll(() => second.status(bad)).toBe("failed");
  expect((await second.batches.find(tenant, bad))?.errors?.data).toMatchObject([{ line: 2 }]);
  await second.stop();
});

test("a batch that expires or is cancelled while it runs starts no more lines", async () => {
  for (const ending of ["expired", "cancelled"] as const) {
    const { promise: held, resolve } = Promise.withResolvers<void>();
    const { batches, clock, engine, queue, results, status, stop, store } = setUp({ script: () => [held, "x"] });
    const id = await queue(["a", "b", "c", "d"]);
    await batches.start();
    await expect.poll(() => engine.requests.length).toBe(2);
    if (ending === "expired") clock.nowMs += dayMs;
    else await batches.cancel(tenant, id);
    // The record says so before the lines in progress have ended.
    await expect.poll(() => endingOf(store, id)).toBe(ending);
    resolve();
    await expect.poll(() => status(id)).toBe(ending);
    expect(engine.requests).toHaveLength(2);
    const ended = await batches.find(tenant, id);
    expect(ended?.request_counts).toEqual({ total: 4, completed: 2, failed: 0 });
    const answered = (await results(ended?.output_file_id)).map((line) => line.custom_id!);
    expect(answered.toSorted()).toEqual(["id-a", "id-b"]);
    const unanswered = (await results(ended?.error_file_id)).map((line) => line.custom_id);
    expect(unanswered).toEqual(ending === "expired" ? ["id-c", "id-d"] : []);
    await stop();
  }
});

test("a batch that ends the server each time before a line is answered is abandoned", async () => {
  const path = join(folder.path, "deadly");
  const ended: ReturnType<typeof setUp>[] = [];
  const first = setUp({ path, script: () => [hang] });
  const id = await first.queue(["deadly"]);
  for (let start = 0; start < 5; start++) {
    const server = start === 0 ? first : setUp({ path, script: () => [hang] });
    await server.batches.start();
    await expect.poll(() => server.engine.requests.length).toBe(1);
    // Like a kill: nothing is released.
    ended.push(server);
  }
  const last = setUp({ path });
  await last.batches.start();
  await expect.poll(() => last.status(id)).toBe("failed");
  expect(last.engine.requests).toEqual([]);
  const errors = (await last.batches.find(tenant, id))?.errors?.data;
  expect(errors).toMatchObject([
    { code: "server_error", message: expect.stringContaining("started 5 times") as string },
  ]);
  for (const server of [...ended, last]) await server.stop();
});

test("abandons a batch whose lines end the engine, but not one that starts after the engine has ended", async () => {
  const path = join(folder.path, "deadly-to-the-engine");
  const dying = () => {
    const server: ReturnType<typeof setUp> = setUp({
      path,
      script() {
        server.engine.state = "failed";
        return [new EngineError("internal", "The engine has failed.")];
      },
    });
    return server;
  };
  const first = dying();
  const id = await first.queue(["deadly"]);
  for (let start = 0; start < 5; start++) {
    const server = start === 0 ? first : dying();
    await server.batches.start();
    await expect.poll(() => server.engine.requests.length).toBe(1);
    await server.stop();
  }
  const ended = setUp({ path });
  ended.engine.state = "failed";
  await ended.batches.start();
  await ended.stop();
  expect(await ended.status(id)).toBe("in_progress");
  const last = setUp({ path });
  await last.batches.start();
  await expect.poll(() => last.status(id)).toBe("failed");
  expect(last.engine.requests).toEqual([]);
  await last.stop();
});

test("a batch that is released cleanly is started again as often as necessary", async () => {
  const path = join(folder.path, "released");
  const first = setUp({ path, script: () => [hang] });
  const id = await first.queue(["slow"]);
  for (let start = 0; start < 8; start++) {
    const server = start === 0 ? first : setUp({ path, script: () => [hang] });
    await server.batches.start();
    await expect.poll(() => server.engine.requests.length).toBe(1);
    await server.stop();
  }
  const last = setUp({ path });
  await last.batches.start();
  await expect.poll(() => last.status(id)).toBe("completed");
  await last.stop();
});

test.for([false, true])(
  "an unreachable store makes a batch wait, and every line has one result (in segments: %s)",
  async (isSegmented) => {
    let isAway = false;
    let hasBeenAway = false;
    const prompts = ["a", "b", "c", "d", "e"];
    const { batches, engine, queue, status, results, log, stop } = setUp({
      isSegmented,
      isBroken: () => isAway,
      script(prompt) {
        if (prompt === "e" && !hasBeenAway) isAway = hasBeenAway = true;
        return ["x"];
      },
    });
    const id = await queue(prompts);
    await batches.start();
    await expect.poll(() => log()).toContain("A job failed; it will be retried.");
    isAway = false;
    await expect.poll(() => status(id)).toBe("completed");
    const answers = await results((await batches.find(tenant, id))?.output_file_id);
    expect(answers.map((line) => line.custom_id!).toSorted()).toEqual(prompts.map((prompt) => `id-${prompt}`));
    const again = isSegmented ? prompts.length : 0;
    expect(engine.requests.length).toBeLessThanOrEqual(prompts.length + again);
    await stop();
  },
);

test("a batch that is finalizing counts all of its answers", async () => {
  let isHeld = true;
  const server: ReturnType<typeof setUp> = setUp({
    tickMs: 1_000_000,
    isBroken: (key) => isHeld && key.startsWith("contents/") && server.engine.requests.length > 0,
  });
  const { batches, queue, status, stop } = server;
  const id = await queue(["a", "b"]);
  await batches.start();
  await expect.poll(() => status(id)).toBe("finalizing");
  expect((await batches.find(tenant, id))?.request_counts).toEqual({ total: 2, completed: 2, failed: 0 });
  isHeld = false;
  await expect.poll(() => status(id)).toBe("completed");
  await stop();
});

test("a batch whose ending could not be stored ends once: its results are in one file", async () => {
  let numRefused = 0;
  let hasResults = false;
  const { path, batches, engine, queue, status, stop } = setUp({
    isBroken(key) {
      if (key.startsWith("contents/") && engine.requests.length === 3) hasResults = true;
      if (!hasResults || !key.startsWith("batches/") || numRefused >= 3) return false;
      numRefused += 1;
      return true;
    },
  });
  const id = await queue(["a", "b", "c"]);
  await batches.start();
  await expect.poll(() => status(id).catch(() => null)).toBe("completed");
  expect(numRefused).toBe(3);
  expect(engine.requests).toHaveLength(3);
  const page = { limit: 10, after: null, order: "desc" } as const;
  expect((await batches.files.list(tenant, page, "batch_output")).items).toHaveLength(1);
  expect(await readdir(join(path, "contents"))).toHaveLength(2);
  await stop();
});

test("results in segments are known to the next process, and deleted when the batch is done", async () => {
  const first = setUp({ isSegmented: true, script: (prompt) => (prompt === "c" ? [hang] : ["x"]) });
  const id = await first.queue(["a", "b", "c", "d"]);
  await first.batches.start();
  await expect.poll(async () => (await first.batches.find(tenant, id))?.request_counts.completed).toBe(3);
  await first.stop();
  const second = setUp({ path: first.path, isSegmented: true });
  await second.batches.start();
  await expect.poll(() => second.status(id)).toBe("completed");
  expect(second.engine.requests.map(({ prompt }) => prompt)).toMatchObject([{ text: "c" }]);
  await expect.poll(() => readdir(join(first.path, "results"))).toEqual([]);
  await second.stop();
});

/** The ending in the state, which the batch's status may not show yet. */
async function endingOf(store: ObjectStore, batchId: string): Promise<string | undefined> {
  const text = await readText(store, `batches/all.${batchId}`);
  return text === null ? undefined : ((JSON.parse(text) as { ending: string | null }).ending ?? undefined);
}

test("lines of a stalled step get no answer until the step has ended", async () => {
  let hasStalled = false;
  const server: ReturnType<typeof setUp> = setUp({
    script(prompt) {
      if (prompt !== "b" || hasStalled) return ["x"];
      hasStalled = true;
      server.engine.state = "stalled";
      return [new EngineError("engine_stalled", "One step of the engine has taken 240 s and has not ended.")];
    },
  });
  const id = await server.queue(["a", "b", "c"]);
  await server.batches.start();
  await expect.poll(() => hasStalled).toBe(true);
  expect(await server.status(id)).toBe("in_progress");
  server.engine.state = "ready";
  await expect.poll(() => server.status(id)).toBe("completed");
  const { output_file_id: outputFileId, request_counts: counts } = (await server.batches.find(tenant, id))!;
  expect(counts).toEqual({ total: 3, completed: 3, failed: 0 });
  expect((await server.results(outputFileId)).map((line) => line.response?.status_code)).toEqual([200, 200, 200]);
  await server.stop();
});

test("the number of unfinished batches changes when one is created and when one ends", async () => {
  const { promise: held, resolve } = Promise.withResolvers<void>();
  const script = (prompt: string): Script => (prompt === "slow" ? [held, "x"] : ["x"]);
  const { batches, metrics, queue, status, stop } = setUp({ script, lookMs: 1_000_000 });
  const numUnfinished = async () =>
    (await metrics.read()).find(({ name }) => name === "fovea_batches_unfinished")?.values[0]?.value;
  await batches.start();
  const slow = await queue(["slow"]);
  expect(await numUnfinished()).toBe(1);
  const quick = await queue(["a"]);
  await expect.poll(() => status(quick)).toBe("completed");
  await expect.poll(numUnfinished).toBe(1);
  resolve();
  await expect.poll(() => status(slow)).toBe("completed");
  await expect.poll(numUnfinished).toBe(0);
  await stop();
});
