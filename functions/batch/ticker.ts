/** Repeats background work, never twice at once. */

export interface Ticker {
  /** Resolves when the work has ended and will not run again. */
  stop(): Promise<void>;
}

/** @param work Never rejects. */
export function startTicker(everyMs: number, work: () => Promise<void>): Ticker {
  let underWay = Promise.resolve();
  let isUnderWay = false;
  const timer = setInterval(() => {
    if (isUnderWay) return;
    isUnderWay = true;
    underWay = work().finally(() => (isUnderWay = false));
  }, everyMs);
  return {
    async stop() {
      clearInterval(timer);
      await underWay;
    },
  };
}
