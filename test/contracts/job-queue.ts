/** The contract of every job queue; call it with a factory of queues. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";

import type { JobQueue, JobWork } from "../../functions/batch/job-queue.ts";

export interface JobQueueContract {
  /**
   * Opens one of several queues over the same jobs, those of the same `name`. Two jobs run at once, and retries come
   * within 100 ms.
   */
  readonly open: (name: string) => Promise<JobQueue>;
}

/** Jobs that end on request, or when their signal aborts. */
class Work {
  readonly begun: string[] = [];
  readonly running = new Set<string>();
  most = 0;
  readonly #ends = new Map<string, (outcome: "finished" | Error) => void>();

  readonly work: JobWork = async (jobId, signal) => {
    this.begun.push(jobId);
    if (this.running.has(jobId)) throw new Error(`${jobId} runs twice`);
    this.running.add(jobId);
    this.most = Math.max(this.most, this.running.size);
    const { promise, resolve, reject } = Promise.withResolvers<"finished" | "released">();
    this.#ends.set(jobId, (outcome) => (outcome === "finished" ? resolve(outcome) : reject(outcome)));
    signal.addEventListener("abort", () => resolve("released"));
    if (signal.aborted) resolve("released");
    try {
      return await promise;
    } finally {
      this.running.delete(jobId);
    }
  };

  end(jobId: string, outcome: "finished" | Error = "finished"): void {
    this.#ends.get(jobId)?.(outcome);
  }
}

/** Long enough for unwanted events to happen. */
const settle = (): Promise<void> => sleep(250);

let numNames = 0;

export function testJobQueue(name: string, contract: JobQueueContract): void {
  describe(`job queue: ${name}`, () => {
    const opened: JobQueue[] = [];
    const open = async (queueName: string): Promise<JobQueue> => {
      const queue = await contract.open(queueName);
      opened.push(queue);
      return queue;
    };
    const newName = (): string => `queue-${numNames++}`;
    afterEach(async () => {
      for (const queue of opened.splice(0)) await queue.close();
    });

    test("runs jobs in order, and no more at once than allowed", async () => {
      const { begun, running, work, ...rest } = bind(new Work());
      const queue = await open(newName());
      for (const jobId of ["a", "b", "c", "d"]) await queue.add(jobId);
      expect(begun).toEqual([]);
      queue.start(work);
      await expect.poll(() => [...running]).toEqual(["a", "b"]);
      rest.end("b");
      await expect.poll(() => [...running]).toEqual(["a", "c"]);
      rest.end("a");
      rest.end("c");
      await expect.poll(() => [...running]).toEqual(["d"]);
      rest.end("d");
      await expect.poll(() => running.size).toBe(0);
      await settle();
      expect(begun).toEqual(["a", "b", "c", "d"]);
      expect(rest.most()).toBe(2);
    });

    test("runs a job once that was added twice", async () => {
      const { begun, running, work, end } = bind(new Work());
      const queue = await open(newName());
      await queue.add("a");
      await queue.add("a");
      queue.start(work);
      await expect.poll(() => running.size).toBe(1);
      await queue.add("a");
      await settle();
      end("a");
      await expect.poll(() => running.size).toBe(0);
      await settle();
      expect(begun).toEqual(["a"]);
    });

    test("retries a failed job and runs others meanwhile", async () => {
      const { begun, running, work, end } = bind(new Work());
      const queue = await open(newName());
      queue.start(work);
      await queue.add("a");
      await expect.poll(() => running.size).toBe(1);
      end("a", new Error("the store is out of reach"));
      await expect.poll(() => begun).toEqual(["a", "a"]);
      end("a");
      await queue.add("b");
      await expect.poll(() => begun).toEqual(["a", "a", "b"]);
      end("b");
    });

    test("releases running jobs when it closes, and another queue resumes them", async () => {
      const shared = newName();
      const first = bind(new Work());
      const queue = await open(shared);
      queue.start(first.work);
      for (const jobId of ["a", "b", "c"]) await queue.add(jobId);
      await expect.poll(() => first.running.size).toBe(2);
      await queue.close();
      expect(first.running.size).toBe(0);
      const second = bind(new Work());
      const next = await open(shared);
      next.start(second.work);
      for (const jobId of ["a", "b", "c"]) await next.add(jobId);
      await expect.poll(() => second.running.size).toBe(2);
      for (const jobId of second.running) second.end(jobId);
      await expect.poll(() => second.running.size).toBe(1);
      for (const jobId of second.running) second.end(jobId);
      await expect.poll(() => second.begun.toSorted()).toEqual(["a", "b", "c"]);
    });

    test("gives each job to only one of several queues", async () => {
      const shared = newName();
      const { begun, running, work, end } = bind(new Work());
      const queues = [await open(shared), await open(shared)];
      for (const queue of queues) {
        queue.start(work);
        for (const jobId of ["a", "b"]) await queue.add(jobId);
      }
      await expect.poll(() => running.size).toBe(2);
      await settle();
      end("a");
      end("b");
      await expect.poll(() => running.size).toBe(0);
      await settle();
      expect(begun.toSorted()).toEqual(["a", "b"]);
    });

    test("removes a waiting job, but not a running or unknown one", async () => {
      const { begun, running, work, end } = bind(new Work());
      const queue = await open(newName());
      queue.start(work);
      for (const jobId of ["a", "b", "c"]) await queue.add(jobId);
      await expect.poll(() => running.size).toBe(2);
      expect(await queue.tryTake("a")).toBe(false);
      expect(await queue.tryTake("unknown")).toBe(false);
      expect(await queue.tryTake("c")).toBe(true);
      expect(await queue.tryTake("c")).toBe(false);
      end("a");
      end("b");
      await expect.poll(() => running.size).toBe(0);
      await settle();
      expect(begun).toEqual(["a", "b"]);
    });
  });
}

function bind(work: Work) {
  return {
    begun: work.begun,
    running: work.running,
    work: work.work,
    end: (jobId: string, outcome?: Error) => work.end(jobId, outcome),
    most: () => work.most,
  };
}
