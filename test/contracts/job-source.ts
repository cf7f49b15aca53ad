/** The contract of every source of jobs; call it with a way to open, fill and inspect one of its queues. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";

import { refusalResult } from "../../functions/jobs/job-result.ts";
import type { JobSource, LeasedJob } from "../../functions/jobs/job-source.ts";
import type { TraceContext } from "../../functions/telemetry/trace-context.ts";

/** A queue of its own. */
export interface TestQueue {
  /** Opens another worker's source of the queue, with leases of `leaseMs`. */
  readonly open: (leaseMs: number) => Promise<JobSource>;
  /** `headers` go beside the message, where the queue has such. */
  readonly send: (body: string, headers?: TraceContext) => Promise<void>;
  /** Bodies of the dead letters. */
  readonly deadLetters: () => Promise<readonly string[]>;
}

/** Ways in which a queue differs from a queue of messages with leases, such as SQS. */
export interface JobSourceTraits {
  /**
   * `queue`: a released job goes to any worker. `worker`: it stays with the worker that has it, because the queue takes
   * no jobs back.
   */
  readonly releasesTo?: "queue" | "worker";
  /**
   * `lease`: the queue takes a job from a worker that does not renew it. `worker`: it takes all jobs of a worker that
   * has ended, and does not tell how often it has handed out a job.
   */
  readonly expiresWith?: "lease" | "worker";
  /** Whether the queue carries headers beside a message. Default true. */
  readonly hasHeaders?: boolean;
}

/** The shortest lease that all queues offer. */
export const LEASE_MS = 2_000;
/** A lease that no test outlasts, also on a busy machine. */
const LONG_LEASE_MS = 300_000;

const refusal = refusalResult("job", null, { code: "invalid_value", message: "The message is wrong." });

export function testJobSource(
  name: string,
  createQueue: () => Promise<TestQueue>,
  { releasesTo = "queue", expiresWith = "lease", hasHeaders = true }: JobSourceTraits = {},
): void {
  describe(`job source: ${name}`, () => {
    const opened: JobSource[] = [];
    const never = new AbortController().signal;

    const start = (...bodies: readonly object[]) => startWithLease(LEASE_MS, bodies);
    const startForLong = (...bodies: readonly object[]) => startWithLease(LONG_LEASE_MS, bodies);

    async function startWithLease(leaseMs: number, bodies: readonly object[]) {
      const queue = await createQueue();
      const open = async (): Promise<JobSource> => {
        const source = await queue.open(leaseMs);
        opened.push(source);
        return source;
      };
      const source = await open();
      for (const body of bodies) await queue.send(JSON.stringify(body));
      return { queue, source, open };
    }

    /** Takes until there are as many jobs: a queue may hand out fewer at once. */
    async function take(source: JobSource, numJobs: number): Promise<LeasedJob[]> {
      const jobs: LeasedJob[] = [];
      while (jobs.length < numJobs) jobs.push(...(await source.take(numJobs - jobs.length, never)));
      return jobs;
    }

    const bodyOf = ({ body }: LeasedJob) => JSON.parse(String(body)) as { readonly n: number };
    const numberOf = (job: LeasedJob): number => bodyOf(job).n;
    const answer = (job: LeasedJob) => ({
      jobId: job.id,
      isSuccess: true,
      text: JSON.stringify({ id: job.id, custom_id: "a", response: { status_code: 200 }, error: null }),
    });

    afterEach(async () => {
      for (const source of opened.splice(0)) await source.close();
    });

    // A queue whose messages have no room for headers has nothing to hand out.
    const testTrace = hasHeaders ? test : null;
    testTrace?.("hands out the trace of the sender with the job", async () => {
      const { queue, source } = await startForLong();
      const trace = { traceparent: `00-${"1a".repeat(16)}-${"2b".repeat(8)}-01`, tracestate: "vendor=1" };
      await queue.send(JSON.stringify({ n: 1 }), trace);
      await queue.send(JSON.stringify({ n: 2 }));
      const traces = new Map((await take(source, 2)).map((job) => [numberOf(job), job.traceContext]));
      expect(traces.get(1)).toEqual(trace);
      expect(traces.get(2)).toBeNull();
    });

    test("hands out each job once, with its body and an id of its own", async () => {
      const bodies = Array.from({ length: 7 }, (_, n) => ({ n, text: 'é "\\ 😀' }));
      const { source, open } = await startForLong(...bodies);
      const jobs = await take(source, 7);
      expect(jobs.map(bodyOf).toSorted((first, second) => first.n - second.n)).toEqual(bodies);
      expect(new Set(jobs.map(({ id }) => id)).size).toBe(7);
      expect(jobs.map(({ numDeliveries }) => numDeliveries)).toEqual(Array.from({ length: 7 }, () => 1));
      expect(await (await open()).take(5, never)).toEqual([]);
      for (const job of jobs) await job.complete(answer(job));
    });

    test("hands out no more jobs than asked for", async () => {
      const { source } = await startForLong({ n: 0 }, { n: 1 }, { n: 2 });
      let jobs: readonly LeasedJob[] = [];
      // A queue may take its time to hand out the first one.
      while (jobs.length === 0) jobs = await source.take(2, never);
      expect(jobs.length).toBeLessThanOrEqual(2);
      for (const job of jobs) await job.release(0);
    });

    test("does not hand out a completed job again", async () => {
      const { source, open, queue } = await start({ n: 0 });
      const [job] = await take(source, 1);
      await job!.complete(answer(job!));
      await sleep(1.5 * LEASE_MS);
      expect(await (await open()).take(1, never)).toEqual([]);
      expect(await queue.deadLetters()).toEqual([]);
    });

    test("hands out a released job again, with the same id and a higher count", async () => {
      const { source, open } = await startForLong({ n: 0 });
      const [first] = await take(source, 1);
      await first!.release(0);
      const other = releasesTo === "queue" ? await open() : source;
      const [second] = await take(other, 1);
      const { id, body, addedAt } = first!;
      expect(second).toMatchObject({ id, body, numDeliveries: 2 });
      expect(second!.addedAt).toBe(addedAt);
      await second!.release(1000);
      const [third] = await take(other, 1);
      expect(third).toMatchObject({ id: first!.id, numDeliveries: 3 });
      await third!.complete(answer(third!));
    });

    test("hands out the job of a silent worker to another one", async () => {
      const { source, open } = await start({ n: 0 });
      const [silent] = await take(source, 1);
      if (expiresWith === "worker") {
        await source.close();
        opened.splice(opened.indexOf(source), 1);
      }
      const [taken] = await take(await open(), 1);
      expect(taken!.id).toBe(silent!.id);
      expect(taken!.numDeliveries).toBeGreaterThanOrEqual(expiresWith === "lease" ? 2 : 1);
      await taken!.complete(answer(taken!));
    });

    test("keeps a renewed job from other workers", async () => {
      let taken: readonly LeasedJob[] | null = null;
      // A machine that is too busy to renew in time shows nothing.
      while (taken === null) taken = await renewWhileAnotherWaits();
      expect(taken).toEqual([]);
    });

    /** Jobs of the other worker; null if a renewal came so late that the lease may have ended before. */
    async function renewWhileAnotherWaits(): Promise<readonly LeasedJob[] | null> {
      const { source, open } = await start({ n: 0 });
      const other = await open();
      // The lease lasts at least from here.
      let keptSinceMs = performance.now();
      const [job] = await take(source, 1);
      const taken: LeasedJob[] = [];
      const stopping = new AbortController();
      const taking = (async () => {
        while (!stopping.signal.aborted && taken.length === 0) taken.push(...(await other.take(1, stopping.signal)));
      })();
      let isInTime = true;
      try {
        for (let renewal = 0; renewal < 12 && isInTime; renewal++) {
          await sleep(LEASE_MS / 4);
          const startedMs = performance.now();
          const error = await job!.renew().catch((thrown: unknown) => thrown);
          isInTime = performance.now() - keptSinceMs < LEASE_MS;
          if (isInTime && error !== undefined) throw error;
          keptSinceMs = startedMs;
        }
      } finally {
        stopping.abort();
        await taking;
        // The other worker may have waited until the lease ended.
        isInTime &&= performance.now() - keptSinceMs < LEASE_MS;
      }
      if (!isInTime) {
        for (const lost of [job!, ...taken]) await lost.release(0).catch(() => {});
        return null;
      }
      await job!.complete(answer(job!));
      return taken;
    }

    test("does not hand out a completed job that is released afterwards", async () => {
      const { source, open } = await start({ n: 0 });
      const [job] = await take(source, 1);
      await job!.complete(answer(job!));
      await job!.release(0).catch(() => {});
      await sleep(1.5 * LEASE_MS);
      expect(await (await open()).take(1, never)).toEqual([]);
      expect(await source.take(1, never)).toEqual([]);
    });

    test("moves a rejected job to the dead letters", async () => {
      const { source, open, queue } = await start({ n: 0 }, { n: 1 });
      const jobs = await take(source, 2);
      const [good, bad] = jobs.toSorted((first, second) => numberOf(first) - numberOf(second));
      await bad!.reject({ ...refusal, jobId: bad!.id });
      await good!.complete(answer(good!));
      await sleep(1.5 * LEASE_MS);
      expect(await (await open()).take(1, never)).toEqual([]);
      expect((await queue.deadLetters()).map((body) => JSON.parse(body))).toEqual([{ n: 1 }]);
    });

    test("stops waiting when its signal is aborted, and loses no job that arrives then", async () => {
      const { source, queue, open } = await start();
      const stopping = new AbortController();
      const taking = source.take(1, stopping.signal);
      stopping.abort();
      await queue.send(JSON.stringify({ n: 0 }));
      const late = await taking;
      for (const job of late) await job.release(0);
      await source.close();
      opened.splice(opened.indexOf(source), 1);
      const [job] = await take(await open(), 1);
      expect(bodyOf(job!)).toEqual({ n: 0 });
      await job!.complete(answer(job!));
    });
  });
}
