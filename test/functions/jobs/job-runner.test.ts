/** The runner of jobs over a scripted engine, with jobs that are pushed to it. */
import { setImmediate as turn } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { prepareLine } from "../../../functions/batch/answer-line.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";
import type { JobResult } from "../../../functions/jobs/job-result.ts";
import { JobRunner } from "../../../functions/jobs/job-runner.ts";
import type { JobRunnerOptions } from "../../../functions/jobs/job-runner.ts";
import { ResultRefusedError } from "../../../functions/jobs/result-sink.ts";
import type { ResultSink } from "../../../functions/jobs/result-sink.ts";
import { createPushedJobSource } from "../../../functions/jobs/sources/pushed-job-source.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";

const MAX_DELIVERIES = 5;
const body = JSON.stringify({ prompt: "a" });

function startRunner(options: Partial<JobRunnerOptions> = {}, script: TestAppOptions["script"] = ["x"]) {
  const { service, engine, config, bodies } = createTestApp({ script });
  const logger = createLogger({ level: "error", write() {} });
  const metrics = createMetrics(service, bodies, "tiny");
  const source = createPushedJobSource({ maxNumWaiting: 10, maxWaitingBytes: 10_000 });
  const runner = new JobRunner({
    source,
    sinks: [],
    openTargets: () => [],
    prepareLine: (line) => prepareLine(line, { service, engine, metrics, logger, config, tenant: "" }),
    runFile: async () => null,
    window: new WorkWindow(2),
    maxNumDeliveries: MAX_DELIVERIES,
    maxMessageBytes: 10_000,
    retry: { firstMs: 1, mostMs: 1 },
    onOutcome() {},
    logger,
    ...options,
  });
  onTestFinished(() => runner.close());
  return { runner, source, engine, service };
}

test.for(["stalled", "failed"] as const)(
  "no job is taken while the engine is %s, so that none is rejected for its deliveries",
  async (state) => {
    let numLooks = 0;
    const { runner, source, engine, service } = startRunner({
      canCompute: () => {
        numLooks += 1;
        return service.state === "ready";
      },
    });
    engine.state = state;
    const outcome = source.push({ id: "a", body, numDeliveries: 1 });
    runner.start();
    await expect.poll(() => numLooks).toBeGreaterThan(2);
    engine.state = "ready";
    expect((await outcome)?.kind).toBe("completed");
  },
);

function createSink(put: (result: JobResult) => Promise<JobResult>): ResultSink {
  return { name: "sink", put, async close() {} };
}

const refusing = createSink(async () => {
  throw new ResultRefusedError("The webhook is gone.");
});
const failing = createSink(async () => {
  throw new Error("The webhook does not answer.");
});

test.for<[string, Partial<JobRunnerOptions>]>([
  ["a place of the settings refuses every result", { sinks: [refusing] }],
  ["a place that the job names never answers", { openTargets: () => [failing] }],
])("a job of which %s goes to the dead letters after its last delivery", async ([, options]) => {
  const { runner, source } = startRunner(options);
  runner.start();
  const kinds: (string | undefined)[] = [];
  const results: string[] = [];
  for (let numDeliveries = 1; numDeliveries <= MAX_DELIVERIES + 1; numDeliveries++) {
    const outcome = await source.push({ id: "a", body, numDeliveries });
    kinds.push(outcome?.kind);
    if (outcome?.kind === "rejected") results.push(outcome.result.text);
  }
  expect(kinds).toEqual([...Array.from({ length: MAX_DELIVERIES }, () => "released"), "rejected"]);
  expect(results).toEqual([expect.stringContaining("too_many_deliveries")]);
});

test("a job with a stored answer that its webhook never takes goes to the dead letters after its last delivery", async () => {
  let stored: JobResult | null = null;
  const storing: ResultSink = {
    ...createSink(async (result) => (stored ??= result)),
    find: async () => stored,
  };
  const { runner, source } = startRunner({ sinks: [storing], openTargets: () => [failing] });
  runner.start();
  const outcomes: unknown[] = [];
  for (let numDeliveries = 1; numDeliveries <= MAX_DELIVERIES + 1; numDeliveries++) {
    outcomes.push(await source.push({ id: "a", body, numDeliveries }));
  }
  expect(outcomes.slice(0, -1)).toEqual(
    Array.from({ length: MAX_DELIVERIES }, () => expect.objectContaining({ kind: "released" }) as unknown),
  );
  expect(outcomes.at(-1)).toMatchObject({ kind: "rejected", result: { isSuccess: true } });
});

test("the number of running jobs counts them from their beginning to their end", async () => {
  const sizes: number[] = [];
  const begun = Promise.withResolvers<void>();
  const storing = Promise.withResolvers<void>();
  const slow = createSink(async (result) => {
    await storing.promise;
    return result;
  });
  const { runner, source } = startRunner({
    sinks: [slow],
    onNumRunning(numRunning) {
      sizes.push(numRunning);
      if (numRunning === 2) begun.resolve();
    },
  });
  const outcomes = ["a", "b"].map((id) => source.push({ id, body, numDeliveries: 1 }));
  runner.start();
  await begun.promise;
  storing.resolve();
  for (const outcome of outcomes) await outcome;
  await runner.stop();
  expect(sizes).toEqual([1, 2, 1, 0]);
});

test("a job that is rejected beside requests is answered after them", async () => {
  const full = new EngineError("queue_full", "There is no room.");
  let numAttempts = 0;
  const window = new WorkWindow(2, {
    whenRoomChanges: () => turn(),
    hasOthers: () => numAttempts < 5,
  });
  const { runner, source } = startRunner({ window }, () => (++numAttempts < 5 ? [full] : ["x"]));
  runner.start();
  const outcome = await source.push({ id: "a", body, numDeliveries: 1 });
  expect(outcome).toMatchObject({ kind: "completed", result: { isSuccess: true } });
  expect(numAttempts).toBe(5);
});

test("jobs pass one that is rejected as long as clients are there", async () => {
  const full = new EngineError("queue_full", "There is no room.");
  const never = Promise.withResolvers<void>().promise;
  const window = new WorkWindow(1, { whenRoomChanges: () => never, hasOthers: () => true });
  let isFirst = true;
  const { runner, source } = startRunner({ window }, () => {
    const script: Script = isFirst ? [full] : ["x"];
    isFirst = false;
    return script;
  });
  // The end of the second job is the change after which the first is tried again.
  const outcomes = ["a", "b"].map((id) => source.push({ id, body, numDeliveries: 1 }));
  runner.start();
  expect((await outcomes[1])?.kind).toBe("completed");
  expect((await outcomes[0])?.kind).toBe("completed");
});

test("a stop releases a job that waits for another try", async () => {
  const full = new EngineError("queue_full", "There is no room.");
  const never = Promise.withResolvers<void>().promise;
  const window = new WorkWindow(1, { whenRoomChanges: () => never, hasOthers: () => true });
  let numAttempts = 0;
  const { runner, source } = startRunner({ window }, () => {
    numAttempts += 1;
    return [full];
  });
  const outcome = source.push({ id: "a", body, numDeliveries: 1 });
  runner.start();
  await expect.poll(() => numAttempts).toBe(1);
  await runner.stop();
  expect((await outcome)?.kind).toBe("released");
  expect(window.isEmpty).toBe(true);
});

test("a job that is rejected alone keeps the answer", async () => {
  const full = new EngineError("queue_full", "There is no room.");
  const { runner, source } = startRunner({}, () => [full]);
  runner.start();
  const outcome = await source.push({ id: "a", body, numDeliveries: 1 });
  expect(outcome).toMatchObject({ kind: "completed", result: { isSuccess: false } });
});

test("a batch that always has a next line leaves every second place to jobs", async () => {
  const window = new WorkWindow(1);
  const order: string[] = [];
  const script = (): Script => {
    order.push("job");
    return ["x"];
  };
  const { runner, source } = startRunner({ window }, script);
  const enter = (line: string) => window.enter(1).then(() => order.push(line));
  await enter("line 1");
  const second = enter("line 2");
  let numTaken = 0;
  const outcome = source.push({ id: "a", body, numDeliveries: 1, onTaken: () => (numTaken += 1) });
  runner.start();
  await expect.poll(() => numTaken).toBe(1);
  // Its way to the window has no I/O.
  await turn();
  const third = enter("line 3");
  window.leave(1);
  await second;
  window.leave(1);
  expect((await outcome)?.kind).toBe("completed");
  await third;
  window.leave(1);
  expect(order).toEqual(["line 1", "line 2", "job", "line 3"]);
});

test("a runner whose own jobs fill the engine takes no other", async () => {
  const { promise: held, resolve } = Promise.withResolvers<void>();
  const { runner, source } = startRunner({ window: new WorkWindow(1) }, [held, "x"]);
  const taken: string[] = [];
  const push = (id: string) => source.push({ id, body, numDeliveries: 1, onTaken: () => taken.push(id) });
  const outcomes = [push("a"), push("b")];
  runner.start();
  await expect.poll(() => runner.numRunning).toBe(1);
  await turn();
  expect(taken).toEqual(["a"]);
  resolve();
  for (const outcome of outcomes) expect((await outcome)?.kind).toBe("completed");
  expect(taken).toEqual(["a", "b"]);
});
