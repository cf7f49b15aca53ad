/** Lines that the engine rejects while clients use it: others pass them, and each is tried again in the end. */
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";

import type { LineAnswer } from "../../../functions/batch/answer-line.ts";
import { createWindow } from "../../../functions/batch/create-window.ts";
import { noLines } from "../../../functions/batch/result-file.ts";
import { runBatch } from "../../../functions/batch/run-batch.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const responseOf = (statusCode: number) => ({ statusCode, requestId: "request", body: {} });
const answered: LineAnswer = { kind: "answered", response: responseOf(200) };
const busy: LineAnswer = { kind: "busy", response: responseOf(429) };

/** Clients that use the engine until `leave`, and whose requests end with each `release`. */
class Clients {
  isPresent = true;
  #released = Promise.withResolvers<void>();

  windowOf(maxWeight: number): WorkWindow {
    const whenRoomChanges = (): Promise<void> => this.#released.promise;
    return new WorkWindow(maxWeight, { hasOthers: () => this.isPresent, whenRoomChanges });
  }

  release(): void {
    this.#released.resolve();
    this.#released = Promise.withResolvers();
  }

  leave(): void {
    this.isPresent = false;
    this.release();
  }
}

interface Line {
  readonly id: string;
  readonly weight?: number;
  readonly answer: () => LineAnswer | Promise<LineAnswer>;
}

function startBatch(lines: readonly Line[], window: WorkWindow) {
  const written: string[] = [];
  const read: string[] = [];
  const stopping = new AbortController();
  const byId = new Map(lines.map((line) => [line.id, line]));
  const summary = runBatch({
    lines: linesOf(lines, read),
    done: noLines(),
    results: { append: async (line) => void written.push(line.custom_id ?? ""), close: async () => {} },
    prepare: ({ customId }) => {
      const { weight = 1, answer } = byId.get(customId)!;
      return { numSequences: weight, answer: async () => answer() };
    },
    window,
    stopping,
    logger: { warn() {} },
    onProgress() {},
  });
  return { summary, written, read, stopping };
}

async function* linesOf(lines: readonly Line[], read: string[]) {
  for (const [index, { id }] of lines.entries()) {
    read.push(id);
    const content = { custom_id: id, method: "POST", url: "/v1/completions", body: {} };
    yield { lineNumber: index + 1, text: JSON.stringify(content), problem: null };
  }
}

async function settle(): Promise<void> {
  for (let turns = 0; turns < 50; turns++) await turn();
}

const quick = (id: string): Line => ({ id, answer: () => answered });

test("lines pass one that is rejected as long as clients are there", async () => {
  const clients = new Clients();
  const busyLine = { id: "busy", answer: () => (clients.isPresent ? busy : answered) };
  const { summary, written } = startBatch([busyLine, quick("a"), quick("b")], clients.windowOf(1));
  await settle();
  expect(written).toEqual(["a", "b"]);
  clients.leave();
  expect(await summary).toMatchObject({ numSucceeded: 3, isComplete: true });
  expect(written).toEqual(["a", "b", "busy"]);
});

test("rejected lines do not wake each other", async () => {
  const clients = new Clients();
  let numTries = 0;
  const rejected = (id: string): Line => ({
    id,
    answer() {
      numTries += 1;
      return clients.isPresent ? busy : answered;
    },
  });
  const { summary } = startBatch(["a", "b", "c", "d"].map(rejected), clients.windowOf(4));
  await settle();
  expect(numTries).toBe(4);
  clients.release();
  await settle();
  // Each waits for one change after the first try, and for two after the second.
  expect(numTries).toBe(8);
  clients.release();
  await settle();
  expect(numTries).toBe(8);
  clients.release();
  await settle();
  expect(numTries).toBe(12);
  clients.leave();
  expect(await summary).toMatchObject({ numSucceeded: 4, isComplete: true });
});

test("the end of a rejected try is no room for the next one, and the end of a request is", async () => {
  const { service, engine } = createTestApp();
  const request = service.admit(new AbortController().signal);
  let numTries = 0;
  const rejected = (id: string): Line => ({
    id,
    answer() {
      numTries += 1;
      service.admitBatchLine().release();
      return service.numRequests > 0 ? busy : answered;
    },
  });
  const config = { engine: { dataParallelSize: 1, maxNumSequences: 8 }, batches: { maxNumSequences: null } };
  const { summary } = startBatch(["a", "b"].map(rejected), createWindow(config, service, engine));
  await settle();
  expect(numTries).toBe(2);
  request.release();
  expect(await summary).toMatchObject({ numSucceeded: 2, isComplete: true });
});

test("no more than twice the lines of the window are held, however many are rejected", async () => {
  const clients = new Clients();
  const ids = Array.from({ length: 50 }, (_, index) => `line-${index}`);
  const answer = () => (clients.isPresent ? busy : answered);
  const lines = ids.map((id) => ({ id, answer }));
  const { summary, read } = startBatch(lines, clients.windowOf(3));
  for (let round = 0; round < 100; round++) {
    clients.release();
    await turn();
  }
  // And the next one, which waits.
  expect(read.length).toBeLessThanOrEqual(7);
  clients.leave();
  expect(await summary).toMatchObject({ numSucceeded: 50, isComplete: true });
});

test("a line that only fits alone is answered beside clients and many other lines", async () => {
  const clients = new Clients();
  let numNow = 0;
  const others = Array.from({ length: 200 }, (_, index) => ({
    id: `line-${index}`,
    async answer() {
      numNow += 1;
      await turn();
      numNow -= 1;
      return answered;
    },
  }));
  const large: Line = { id: "large", weight: 2, answer: () => (numNow > 0 ? busy : answered) };
  const { summary, written } = startBatch([...others.slice(0, 3), large, ...others.slice(3)], clients.windowOf(4));
  expect(await summary).toMatchObject({ numSucceeded: 201, isComplete: true });
  expect(written.indexOf("large")).toBeLessThan(100);
});

test("a stop ends the wait of rejected lines, and leaves the window empty", async () => {
  const clients = new Clients();
  const window = clients.windowOf(1);
  const rejected = (id: string): Line => ({ id, answer: () => busy });
  const { summary, written, stopping } = startBatch([rejected("a"), rejected("b"), rejected("c")], window);
  await settle();
  stopping.abort();
  expect(await summary).toMatchObject({ numSucceeded: 0, numFailed: 0, isComplete: false });
  expect(written).toEqual([]);
  await settle();
  expect([window.isEmpty, window.weight]).toEqual([true, 0]);
});

test("a result that cannot be written ends the wait of rejected lines", async () => {
  const clients = new Clients();
  const lines: Line[] = [{ id: "busy", answer: () => busy }, quick("a")];
  const summary = runBatch({
    lines: linesOf(lines, []),
    done: noLines(),
    results: { append: () => Promise.reject(new Error("no space left")), close: async () => {} },
    prepare: ({ customId }) => {
      return { numSequences: 1, answer: async () => lines.find(({ id }) => id === customId)!.answer() };
    },
    window: clients.windowOf(1),
    stopping: new AbortController(),
    logger: { warn() {} },
    onProgress() {},
  });
  await expect(summary).rejects.toThrow("no space left");
});
