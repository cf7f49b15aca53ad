/** Jobs that come in over HTTP, and the jobs of RunPod's local API in them, without a runner. */
import { describe, expect, test } from "vitest";

import { answerResult, refusalResult } from "../../../functions/jobs/job-result.ts";
import type { LeasedJob } from "../../../functions/jobs/job-source.ts";
import { RunpodJobs } from "../../../functions/jobs/runpod-local/runpod-jobs.ts";
import type { RunpodJobsOptions } from "../../../functions/jobs/runpod-local/runpod-jobs.ts";
import { createPushedJobSource } from "../../../functions/jobs/sources/pushed-job-source.ts";

const never = new AbortController().signal;
const job = (id: string, body = "{}") => ({ id, body, numDeliveries: 1 });
const answerOf = (id: string, text = "Hi") => answerResult(id, id, { statusCode: 200, requestId: "r", body: { text } });
const createSource = (maxNumWaiting = 10, maxWaitingBytes = 1000) =>
  createPushedJobSource({ maxNumWaiting, maxWaitingBytes });

describe("pushed jobs", () => {
  test("go to the runner in order, and their results to the senders", async () => {
    const source = createSource();
    const outcomes = ["a", "b", "c"].map((id) => source.push({ ...job(id, `{"id":"${id}"}`), numDeliveries: 3 }));
    const first = await source.take(2, never);
    expect(first.map(({ id, body, numDeliveries }) => [id, body, numDeliveries])).toEqual([
      ["a", '{"id":"a"}', 3],
      ["b", '{"id":"b"}', 3],
    ]);
    const [last] = await source.take(2, never);
    await first[0]!.complete(answerOf("a"));
    const refusal = refusalResult("b", null, { code: "invalid_value", message: "No." });
    await first[1]!.reject(refusal);
    await last!.release(2_000);
    expect(await Promise.all(outcomes.map(async (outcome) => outcome))).toEqual([
      { kind: "completed", result: answerOf("a") },
      { kind: "rejected", result: refusal },
      { kind: "released", delayMs: 2_000 },
    ]);
  });

  test("wake a runner that waits", async () => {
    const source = createSource();
    const taking = source.take(1, never);
    void source.push(job("a"));
    expect(await taking).toHaveLength(1);
  });

  test("with the same id have one outcome", async () => {
    const source = createSource();
    const outcomes = [source.push(job("a")), source.push(job("a"))];
    const taken = await source.take(5, never);
    const late = source.push(job("a"));
    expect(taken).toHaveLength(1);
    await taken[0]!.complete(answerOf("a"));
    expect(new Set(await Promise.all([...outcomes, late])).size).toBe(1);
  });

  test("are refused beyond the limits of their number and bytes, until the runner takes some", async () => {
    const source = createSource(2, 100);
    expect([source.push(job("a")), source.push(job("b"))]).not.toContain(null);
    expect(source.push(job("c"))).toBeNull();
    await source.take(2, never);
    expect(source.push(job("d", "x".repeat(101)))).toBeNull();
    void source.push(job("e", "x".repeat(60)));
    expect(source.push(job("f", "x".repeat(60)))).toBeNull();
    source.cancel("e");
    expect(source.push(job("g", "x".repeat(60)))).not.toBeNull();
  });

  test("that are cancelled are lost to the runner, which cannot end them", async () => {
    const source = createSource();
    const outcome = source.push(job("a"));
    const [taken] = await source.take(1, never);
    source.cancel("a");
    expect([await outcome, taken!.lost.aborted]).toEqual([{ kind: "released", delayMs: 0 }, true]);
    await taken!.complete(answerOf("a"));
    expect(await outcome).toEqual({ kind: "released", delayMs: 0 });
  });

  test("that wait are released when the runner stops, and those that run when they end", async () => {
    const source = createSource();
    const running = source.push(job("a"));
    const [taken] = await source.take(1, never);
    const waiting = source.push(job("b"));
    const stopping = new AbortController();
    stopping.abort();
    expect(await source.take(1, stopping.signal)).toEqual([]);
    expect(await waiting).toEqual({ kind: "released", delayMs: 0 });
    expect(await source.push(job("c"))).toEqual({ kind: "released", delayMs: 0 });
    await taken!.complete(answerOf("a"));
    expect(await running).toMatchObject({ kind: "completed" });
  });

  test("end a call of take that waits when the runner stops", async () => {
    const source = createSource();
    const stopping = new AbortController();
    const taking = source.take(1, stopping.signal);
    stopping.abort();
    expect(await taking).toEqual([]);
  });
});

describe("RunPod jobs", () => {
  const input = JSON.stringify({ prompt: "Hello" });
  const streamed = JSON.stringify({ prompt: "Hello", stream: true });

  function createJobs(options: Partial<RunpodJobsOptions> = {}) {
    const source = createSource();
    const jobs = new RunpodJobs({ source, listModels: () => ({ data: [] }), ...options });
    const take = async (): Promise<LeasedJob> => (await source.take(1, never))[0]!;
    return { source, jobs, take };
  }

  test("end as TIMED_OUT when they compute or live too long, and are lost to the runner", async () => {
    const { jobs, take } = createJobs();
    const computing = jobs.run("", "run", { input, executionTimeoutMs: 1 })!;
    const leased = await take();
    const waiting = jobs.run("", "run", { input, ttlMs: 1 })!;
    await expect.poll(() => [computing.status, waiting.status]).toEqual(["TIMED_OUT", "TIMED_OUT"]);
    expect(leased.lost.aborted).toBe(true);
    const next = jobs.run("", "run", { input })!;
    expect((await take()).id).toBe(next.id);
  });

  test("are tried again when they are released, with a higher count", async () => {
    const { jobs, take } = createJobs();
    const held = jobs.run("", "run", { input })!;
    await (await take()).release(1);
    const again = await take();
    expect([again.id, again.numDeliveries]).toEqual([held.id, 2]);
    await again.complete(answerOf(held.id));
    await expect.poll(() => held.status).toBe("COMPLETED");
  });

  test("fail when a part of their answer was streamed before they are released", async () => {
    const { jobs, take } = createJobs();
    const held = jobs.run("", "run", { input: streamed })!;
    const leased = await take();
    await leased.stream!({ n: 1 });
    expect(jobs.readChunks(held)).toEqual(['data: {"n":1}\n\n']);
    await leased.release(1);
    await expect.poll(() => held.status).toBe("FAILED");
    expect(held.result).toEqual({ error: expect.stringContaining("after a part of it was streamed") as string });
  });

  test("fail when the service shuts down before they end", async () => {
    const { jobs, take, source } = createJobs();
    const running = jobs.run("", "run", { input })!;
    const leased = await take();
    const waiting = jobs.run("", "run", { input })!;
    source.stop();
    await leased.release(0);
    await expect.poll(() => [running.status, waiting.status]).toEqual(["FAILED", "FAILED"]);
  });

  test("are kept for 30 minutes after /run, and for one after /runsync", async () => {
    let now = 0;
    const { jobs, take } = createJobs({ now: () => now });
    const kept = [jobs.run("", "run", { input })!, jobs.run("", "runsync", { input })!];
    for (const { id } of kept) await (await take()).complete(answerOf(id));
    await expect.poll(() => kept.map(({ status }) => status)).toEqual(["COMPLETED", "COMPLETED"]);
    const isFound = () => kept.map(({ id }) => jobs.find("", id) !== null);
    now = 60_000;
    expect(isFound()).toEqual([true, true]);
    now = 60_001;
    expect(isFound()).toEqual([true, false]);
    now = 30 * 60_000 + 1;
    expect(isFound()).toEqual([false, false]);
  });

  test("make room for others when they have ended, the oldest first", async () => {
    const { jobs, take } = createJobs({ maxNumJobs: 2 });
    const [first, second] = [jobs.run("", "run", { input })!, jobs.run("", "run", { input })!];
    expect(jobs.run("", "run", { input })).toBeNull();
    await (await take()).complete(answerOf(first.id));
    await expect.poll(() => first.status).toBe("COMPLETED");
    expect(jobs.run("", "run", { input })).not.toBeNull();
    expect([jobs.find("", first.id), jobs.find("", second.id)]).toEqual([null, second]);
  });

  test("with more characters than the limit are forgotten, the oldest first", async () => {
    const { jobs, take } = createJobs({ maxCharacters: 1_500 });
    const ended = [1, 2, 3].map(() => jobs.run("", "run", { input })!);
    for (const { id } of ended) await (await take()).complete(answerOf(id, "x".repeat(600)));
    await expect.poll(() => ended.map(({ id }) => jobs.find("", id) !== null)).toEqual([false, true, true]);
  });

  test("drop a stream that is not read, and keep the answer", async () => {
    const { jobs, take } = createJobs();
    const held = jobs.run("", "run", { input: streamed })!;
    const leased = await take();
    for (let count = 0; count < 20; count++) await leased.stream!({ text: "x".repeat(1_000_000) });
    expect(jobs.readChunks(held).length).toBeLessThan(10);
    await leased.complete(answerOf(held.id));
    await expect.poll(() => held.status).toBe("COMPLETED");
    expect(held.result).toEqual({ output: [{ text: "Hi" }] });
  });
});
