import { expect, test } from "vitest";

import type { LineAnswer } from "../../../functions/batch/answer-line.ts";
import { noLines } from "../../../functions/batch/result-file.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { runBatch } from "../../../functions/batch/run-batch.ts";
import type { BatchOptions } from "../../../functions/batch/run-batch.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";

const responseOf = (statusCode: number) => ({ statusCode, requestId: "request", body: {} });
const answered: LineAnswer = { kind: "answered", response: responseOf(200) };
const busy: LineAnswer = { kind: "busy", response: responseOf(429) };

/** Lines with these ids, one after the other. */
async function* linesOf(customIds: readonly string[]) {
  for (const [index, customId] of customIds.entries()) {
    const content = { custom_id: customId, method: "POST", url: "/v1/completions", body: {} };
    yield { lineNumber: index + 1, text: JSON.stringify(content), problem: null };
  }
}

/** Runs lines of one sequence each, three at a time. */
async function run(
  customIds: readonly string[],
  answer: (customId: string) => Promise<LineAnswer>,
  overrides: Partial<BatchOptions> = {},
) {
  const written: ResultLine[] = [];
  const progress: number[] = [];
  const stopping = new AbortController();
  const summary = await runBatch({
    lines: linesOf(customIds),
    done: noLines(),
    results: { append: async (line) => void written.push(line), close: async () => {} },
    prepare: ({ customId }) => ({ numSequences: 1, answer: () => answer(customId) }),
    window: new WorkWindow(3),
    stopping,
    logger: { warn() {} },
    onProgress: (numLines) => progress.push(numLines),
    ...overrides,
  });
  return { summary, written, progress, stopping };
}

/** Tracks the current and the maximum concurrency. */
class Load {
  now = 0;
  most = 0;

  async during<Value>(work: () => Promise<Value>): Promise<Value> {
    this.now += 1;
    this.most = Math.max(this.most, this.now);
    await new Promise((resolve) => setImmediate(resolve));
    try {
      return await work();
    } finally {
      this.now -= 1;
    }
  }
}

const ids = Array.from({ length: 20 }, (_, index) => `line-${index}`);

test("no more sequences are in progress than the engine has room for", async () => {
  const load = new Load();
  const { summary, written, progress } = await run(ids, () => load.during(async () => answered));
  expect(load.most).toBe(3);
  expect(new Set(written.map((line) => line.custom_id))).toEqual(new Set(ids));
  expect(progress).toEqual(ids.map((_, index) => index + 1));
  expect(summary).toEqual({ numSucceeded: 20, numFailed: 0, numBad: 0, numSkipped: 0, isComplete: true });
});

test("fewer are in progress while others use room, at least one, and more when they leave", async () => {
  const load = new Load();
  let room = 0;
  let notify = (): void => {};
  const window = new WorkWindow(3, {
    room: () => room,
    whenRoomChanges: () => new Promise((resolve) => (notify = resolve)),
  });
  const most: number[] = [];
  await run(
    ids,
    (customId) =>
      load.during(async () => {
        if (customId === "line-9") most.push(load.most);
        if (customId === "line-10") {
          room = 3;
          notify();
        }
        return answered;
      }),
    { window },
  );
  expect(most).toEqual([1]);
  expect(load.most).toBe(3);
});

test("a line that is rejected while others use room waits for them, however often", async () => {
  let numRefusals = 0;
  let room = 2;
  const window = new WorkWindow(3, {
    room: () => room,
    whenRoomChanges: () => new Promise((resolve) => setImmediate(resolve)),
  });
  const { summary } = await run(
    ["a"],
    async () => {
      numRefusals += 1;
      if (numRefusals === 5) room = 3;
      return numRefusals < 6 ? busy : answered;
    },
    { window },
  );
  expect(numRefusals).toBe(6);
  expect(summary).toMatchObject({ numSucceeded: 1, numFailed: 0 });
});

test("a line that is rejected beside requests waits for them, also for those that leave room and that come meanwhile", async () => {
  let numRefusals = 0;
  let hasOthers = true;
  const window = new WorkWindow(3, {
    whenRoomChanges: () => new Promise((resolve) => setImmediate(resolve)),
    hasOthers: () => hasOthers,
  });
  const { summary } = await run(
    ["a"],
    async () => {
      numRefusals += 1;
      if (numRefusals === 3) hasOthers = false;
      // A request comes during the first attempt that begins alone.
      if (numRefusals === 4) hasOthers = true;
      return numRefusals < 7 ? busy : answered;
    },
    { window },
  );
  expect(numRefusals).toBe(7);
  expect(summary).toMatchObject({ numSucceeded: 1, numFailed: 0 });
});

test("a line with more sequences than there is room for runs alone", async () => {
  const load = new Load();
  const besideLarge: number[] = [];
  const prepare: BatchOptions["prepare"] = ({ customId }) => ({
    numSequences: customId === "line-7" ? 100 : 1,
    answer: () =>
      load.during(async () => {
        if (customId === "line-7") besideLarge.push(load.now);
        return answered;
      }),
  });
  await run(ids, async () => answered, { prepare });
  expect(besideLarge).toEqual([1]);
});

test("lines in memory have at most the bytes of the window, whatever they wait for; a longer line is there alone", async () => {
  const load = new Load();
  const numBesideLong: number[] = [];
  const long = "x".repeat(400);
  const customIds = [...ids.slice(0, 9), long, ...ids.slice(9)];
  const prepare: BatchOptions["prepare"] = ({ customId }) => ({
    numSequences: 1,
    answer: () =>
      load.during(async () => {
        if (customId === long) numBesideLong.push(load.now);
        return answered;
      }),
  });
  // Each line has 81 or 82 bytes, the long one more than fit.
  const window = new WorkWindow(10, { maxLineBytes: 200 });
  const { summary } = await run(customIds, async () => answered, { window, prepare });
  expect(load.most).toBe(2);
  expect(numBesideLong).toEqual([1]);
  expect(summary).toMatchObject({ numSucceeded: 21, isComplete: true });
  expect(window.memory?.weight).toBe(0);
});

test("batches that share a window share its memory, and a stop ends the wait for it", async () => {
  const window = new WorkWindow(10, { maxLineBytes: 100 });
  const { promise: held, resolve } = Promise.withResolvers<void>();
  const first = run(["a"], async () => held.then(() => answered), { window });
  const stopping = new AbortController();
  const begun: string[] = [];
  const second = run(
    ["b"],
    async (customId) => {
      begun.push(customId);
      return answered;
    },
    { window, stopping },
  );
  await new Promise((done) => setImmediate(done));
  stopping.abort();
  expect((await second).summary.isComplete).toBe(false);
  resolve();
  expect((await first).summary.isComplete).toBe(true);
  expect(begun).toEqual([]);
  await expect.poll(() => window.memory?.weight).toBe(0);
});

test("a line without room is retried alone, and then keeps its result", async () => {
  const load = new Load();
  const { summary, written } = await run(ids, (customId) =>
    load.during(async () => {
      if (customId === "line-5") return busy;
      return customId === "line-3" && load.now > 1 ? busy : answered;
    }),
  );
  expect(summary).toMatchObject({ numSucceeded: 19, numFailed: 1, isComplete: true });
  const refused = written.filter(({ response }) => response?.status_code !== 200);
  expect(refused.map((line) => line.custom_id)).toEqual(["line-5"]);
});

test("lines answered by an earlier run are skipped; a duplicate id is an error, once", async () => {
  const answeredIds: string[] = [];
  const answer = async (customId: string): Promise<LineAnswer> => {
    answeredIds.push(customId);
    return answered;
  };
  const first = await run(["a", "b", "a", "c"], answer, {
    done: { ...noLines(), customIds: new Set(["b"]) },
  });
  expect(answeredIds).toEqual(["a", "c"]);
  expect(first.summary).toEqual({ numSucceeded: 2, numFailed: 0, numBad: 1, numSkipped: 1, isComplete: true });
  expect(first.written.find(({ error }) => error !== null)).toMatchObject({
    custom_id: "a",
    error: { code: "duplicate_custom_id", line: 3 },
  });
  const second = await run(["a", "b", "a", "c"], answer, {
    done: { ...noLines(), customIds: new Set(["a", "b", "c"]), badLines: new Set([3]) },
  });
  expect(second.summary).toMatchObject({ numSkipped: 4, isComplete: true });
});

test("after a stop no line starts, and those in progress are written", async () => {
  const stopping = new AbortController();
  const { summary, written } = await run(
    ids,
    async (customId) => {
      if (customId === "line-4") stopping.abort();
      return answered;
    },
    { stopping },
  );
  expect(summary.isComplete).toBe(false);
  expect(written.map((line) => line.custom_id)).toContain("line-4");
  expect(written.length).toBeLessThan(ids.length);
});

test("an abandoned line is not written and stops the run", async () => {
  const { summary, written, stopping } = await run(ids, async (customId) =>
    customId === "line-2" ? { kind: "given up" } : answered,
  );
  expect(stopping.signal.aborted).toBe(true);
  expect(summary.isComplete).toBe(false);
  expect(written.map((line) => line.custom_id)).not.toContain("line-2");
});

test("a result that cannot be written ends the run with the reason", async () => {
  let numAppended = 0;
  const append = async (): Promise<void> => {
    numAppended += 1;
    if (numAppended === 4) throw new Error("no space left");
  };
  await expect(run(ids, async () => answered, { results: { append, close: async () => {} } })).rejects.toThrow(
    "no space left",
  );
  expect(numAppended).toBeLessThan(ids.length);
});
