/** Times of runs, which end when the device has ended. */
import { performance } from "node:perf_hooks";

export interface TimingOptions {
  readonly numWarmups?: number;
  readonly numRuns: number;
}

/** Milliseconds of each run, sorted. */
export function timeRuns(run: () => void, { numWarmups = 3, numRuns }: TimingOptions): number[] {
  for (let index = 0; index < numWarmups; index++) run();
  const times = Array.from({ length: numRuns }, () => {
    const startedAt = performance.now();
    run();
    return performance.now() - startedAt;
  });
  return times.sort((left, right) => left - right);
}

export function medianOf(sorted: readonly number[]): number {
  return sorted[sorted.length >> 1]!;
}
