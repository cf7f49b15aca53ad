/** Work that is done again and again beside other work, never twice at once. */

export interface Ticker {
  /** Resolves when the work is not under way and will not be again. */
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
