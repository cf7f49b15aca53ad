/** Keeps the lease of a job while it is computed. */
import type { Logger } from "../logger.ts";
import { LeaseLostError } from "./job-source.ts";
import type { LeasedJob } from "./job-source.ts";

/** Renewals per lease, so that one that fails is tried again in time. */
const RENEWALS_PER_LEASE = 3;

export interface Lease {
  /** Aborted when another worker may have the job. */
  readonly lost: AbortSignal;
  /** Resolves when no renewal is under way. */
  stop(): Promise<void>;
}

/**
 * Renews at a third of `leaseMs`, one call at a time. The lease counts as lost when the queue says so, and when no
 * renewal has succeeded for `leaseMs`.
 */
export function keepLease(job: LeasedJob, leaseMs: number, logger: Logger): Lease {
  const controller = new AbortController();
  const lose = (): void => controller.abort(new LeaseLostError(job.id));
  job.lost.addEventListener("abort", lose, { once: true });
  if (job.lost.aborted) lose();
  let underWay: Promise<void> | null = null;
  let renewedAt = performance.now();

  const renew = async (): Promise<void> => {
    const startedAt = performance.now();
    try {
      await job.renew();
      renewedAt = startedAt;
    } catch (error) {
      if (error instanceof LeaseLostError) return lose();
      logger.warn("The lease of a job could not be renewed; retrying.", { jobId: job.id, error });
    }
  };
  const tick = (): void => {
    // Also while a renewal hangs.
    if (performance.now() - renewedAt >= leaseMs) lose();
    if (controller.signal.aborted) return clearInterval(timer);
    underWay ??= renew().finally(() => (underWay = null));
  };
  const timer = Number.isFinite(leaseMs) ? setInterval(tick, leaseMs / RENEWALS_PER_LEASE) : undefined;
  return {
    lost: controller.signal,
    async stop() {
      clearInterval(timer);
      job.lost.removeEventListener("abort", lose);
      await underWay;
    },
  };
}
