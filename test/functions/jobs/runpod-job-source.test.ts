/** The source of RunPod's jobs when calls hang or fail for good, with short times between attempts. */
import { expect, test } from "vitest";

import { answerResult } from "../../../functions/jobs/job-result.ts";
import type { JobSource, LeasedJob } from "../../../functions/jobs/job-source.ts";
import { createRunpodJobSource } from "../../../functions/jobs/sources/runpod-job-source.ts";
import { createLogger } from "../../../functions/logger.ts";
import { startRunpodServer } from "../../support/servers/runpod-server.ts";

const never = new AbortController().signal;
/** No call takes that long, also on a busy machine. */
const patient = { longPollMs: 60_000, callMs: 60_000 };
/** For calls that hang. Those beside them have enough time. */
const impatient = { longPollMs: 1_000, callMs: 1_000 };

async function start({ longPollMs, callMs } = patient) {
  const server = await startRunpodServer({ holdMs: 50 });
  const log: string[] = [];
  const source = createRunpodJobSource({
    worker: server.worker(),
    pingMs: 100,
    listModels: () => ({}),
    logger: createLogger({ level: "debug", write: (line) => void log.push(line) }),
    times: { retryMs: [1, 1, 1], longPollMs, callMs },
  });
  return {
    server,
    source,
    log,
    async [Symbol.asyncDispose]() {
      await source.close();
      await server.stop();
      expect(server.violations).toEqual([]);
    },
  };
}

async function takeOne(source: JobSource): Promise<LeasedJob> {
  for (;;) {
    const [job] = await source.take(1, never);
    if (job !== undefined) return job;
  }
}

const answerOf = ({ id }: LeasedJob) => answerResult(id, id, { statusCode: 200, requestId: "r", body: { text: "Hi" } });

test("takes jobs after a call for jobs that hung", async () => {
  await using run = await start(impatient);
  const { server, source } = run;
  server.fail("job-take", "hang");
  const id = server.run("{}");
  expect(await source.take(1, never)).toEqual([]);
  const job = await takeOne(source);
  expect(job.id).toBe(id);
  await job.complete(answerOf(job));
});

test("sends a result again that RunPod did not answer in time", async () => {
  await using run = await start(impatient);
  const { server, source } = run;
  const id = server.run("{}");
  const job = await takeOne(source);
  server.fail("job-done", "hang", "hang");
  await job.complete(answerOf(job));
  expect(server.job(id)).toMatchObject({ status: "COMPLETED", output: [{ text: "Hi" }] });
});

test("says so when RunPod takes no result, and no longer counts the job as its own", async () => {
  await using run = await start();
  const { server, source } = run;
  const id = server.run("{}");
  const job = await takeOne(source);
  server.fail("job-done", 500, 502, 503, "cut");
  await expect(job.complete(answerOf(job))).rejects.toThrow(/other side closed|socket hang up|ECONNRESET/);
  const numPings = (): number => server.calls.filter((call) => call.includes("/ping/")).length;
  const before = numPings();
  await expect.poll(numPings).toBeGreaterThan(before + 1);
  expect(server.calls.findLast((call) => call.includes("/ping/"))).not.toContain(id);
});

test("lists the jobs that it has in heartbeats, also those that wait for another try", async () => {
  await using run = await start();
  const { server, source } = run;
  const ids = [server.run("{}"), server.run("{}")];
  const jobs = [await takeOne(source), await takeOne(source)];
  await jobs[0]!.release(60_000);
  const lastPing = () => server.calls.findLast((call) => call.includes("/ping/"));
  await expect.poll(lastPing).toContain(`job_id=${ids.join("%2C")}`);
  server.cancel(jobs[0]!.id);
  await jobs[1]!.complete(answerOf(jobs[1]!));
  await expect.poll(lastPing).not.toContain("job_id");
});

test("fails a streamed job that is released after its first chunk", async () => {
  await using run = await start();
  const { server, source } = run;
  const id = server.run(JSON.stringify({ prompt: "Hello", stream: true }));
  const job = await takeOne(source);
  await job.stream!({ n: 1 });
  await job.release(0);
  expect(server.job(id)).toMatchObject({ status: "FAILED", error: expect.stringContaining("retry the job") as string });
});

test("gathers chunks while a post is under way, in order and below RunPod's limit", async () => {
  await using run = await start();
  const { server, source } = run;
  const id = server.run(JSON.stringify({ prompt: "Hello", stream: true }));
  const job = await takeOne(source);
  const chunks = Array.from({ length: 2_000 }, (_, n) => ({ n, text: "é😀".repeat(300) }));
  for (const chunk of chunks) await job.stream!(chunk);
  await job.complete(answerOf(job));
  const { chunks: posts } = server.job(id);
  const events = posts.join("").split("\n\n").slice(0, -1);
  expect(events.slice(0, -1).map((event) => JSON.parse(event.slice(6)) as unknown)).toEqual(chunks);
  expect(events.at(-1)).toBe("data: [DONE]");
  expect(posts.length).toBeLessThan(200);
});

test("closes while calls wait", async () => {
  const run = await start();
  const taking = run.source.take(1, never);
  run.server.fail("job-take", "hang");
  run.server.fail("job-stop", "hang");
  await run[Symbol.asyncDispose]();
  expect(await taking).toEqual([]);
});
