/** Suites of classes that share a service, with a bounded number of cases each. */
import { afterAll, beforeAll, expect, test } from "vitest";

import type { AttackClass } from "./attack.ts";
import { describeFault } from "./describe.ts";
import { runRoundOn } from "./round.ts";
import { readSeed } from "./seed.ts";
import { Target } from "./target.ts";

/** Enough to see whether several faults are the same. */
const MAX_FAULTS = 3;
/** For a class with faults; without them it takes seconds. */
const TIMEOUT_MS = 600_000;

/** All classes have the same surroundings. FOVEA_ATTACK_SEED selects other cases: a number, or `new`. */
export function testAttacks(classes: readonly AttackClass[]): void {
  const seed = readSeed(process.env.FOVEA_ATTACK_SEED);
  let target: Target;

  beforeAll(async () => {
    target = await Target.prepare(classes[0]!);
  });
  afterAll(() => target[Symbol.asyncDispose]());

  test.for(classes)("$title: $numCases cases break no invariant", { timeout: TIMEOUT_MS }, async (attackClass) => {
    const { numCases } = attackClass;
    const report = await runRoundOn(target, attackClass, { seed, cases: { count: numCases }, maxFaults: MAX_FAULTS });
    expect(report.faults.map(describeFault).join("\n\n")).toBe("");
    expect(report.numCases).toBe(numCases);
  });
}
