/** Lets results of jobs onto S3 in portions, so that jobs are left at each fault of a test on a machine of any speed. */
import { expect } from "vitest";

import type { FaultProxy } from "../servers/fault-proxy.ts";

export interface ResultGate {
  /** Resolves when so many results are stored, and holds the next ones. A few of them may be stored already. */
  readonly untilStored: (numResults: number, timeoutMs: number) => Promise<void>;
  /** Continues after `decide` of the proxy was used for something else. */
  readonly resume: () => void;
  /** Holds nothing any more: workers may also store results again that are there. */
  readonly open: () => void;
}

const LOOK_MS = 200;

/** @param numStored Results that are stored below the workers' prefix. */
export function createResultGate(proxy: FaultProxy, numStored: () => Promise<number>): ResultGate {
  let numWrites = 0;
  let numAllowed = 0;
  let numHeld = 0;
  const resume = (): void =>
    proxy.decide(({ method }) => {
      if (method !== "PUT") return "forward";
      numWrites += 1;
      if (numWrites <= numAllowed) return "forward";
      numHeld += 1;
      return "hold";
    });
  resume();
  return {
    resume,
    open() {
      proxy.decide(() => "forward");
      proxy.release();
    },
    async untilStored(numResults, timeoutMs) {
      const look = async (): Promise<number> => {
        const num = await numStored();
        if (num < numResults) {
          numAllowed = numWrites + Math.max(0, numResults - num - numHeld);
          numHeld = 0;
          proxy.release();
        }
        return num;
      };
      await expect.poll(look, { timeout: timeoutMs, interval: LOOK_MS }).toBeGreaterThanOrEqual(numResults);
    },
  };
}
