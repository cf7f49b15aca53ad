/** The suite of one class: a bounded number of its cases against a service of its own. */
import { expect, test } from "vitest";

import type { AttackClass } from "./attack.ts";
import { describeFault } from "./describe.ts";
import { runRound } from "./round.ts";
import { readSeed } from "./seed.ts";

/** Enough to see whether several are one. */
const MAX_FAULTS = 3;
/** For faults: without one a class takes seconds. */
const TIMEOUT_MS = 600_000;

/** FOVEA_ATTACK_SEED picks other cases: a number, or `new`. */
export function testAttacks(attackClass: AttackClass, numCases: number): void {
  const seed = readSeed(process.env.FOVEA_ATTACK_SEED);
  test(
    `${attackClass.title}: ${numCases} cases of seed ${seed} break no invariant`,
    { timeout: TIMEOUT_MS },
    async () => {
      const report = await runRound(attackClass, { seed, cases: { count: numCases }, maxFaults: MAX_FAULTS });
      expect(report.faults.map(describeFault).join("\n\n")).toBe("");
      expect(report.numCases).toBe(numCases);
    },
  );
}
