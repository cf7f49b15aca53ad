/** Delays of jobs in BullMQ's queues. */
import type { Job, RedisQueueBackend } from "bullmq";
import type { Redis } from "ioredis";

/**
 * Gives a job back, to be handed out after `delayMs`. Workers compare the end of the delay with their own clocks. So it
 * counts from the clock of Redis or of this machine, whichever is behind: if this one were an hour fast, others would
 * leave the job for an hour, and if it were an hour slow, it would do so itself.
 */
export async function delayJob(job: Job<unknown>, delayMs: number, token: string): Promise<void> {
  const backend = job["backend"] as RedisQueueBackend;
  const client = (await backend.client) as unknown as Pick<Redis, "time">;
  const [seconds, microseconds] = await client.time();
  const now = Math.min(Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000), Date.now());
  await backend.moveToDelayed(job.id ?? "", now, delayMs, token, { skipAttempt: true });
}
