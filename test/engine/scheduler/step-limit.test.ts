import * as fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";

import { StepLimit } from "../../../engine/scheduler/step-limit.ts";
import type { FailedRun } from "../../../engine/scheduler/step-limit.ts";

const warnings: string[] = [];
const onWarning = ({ message }: Error): void => void warnings.push(message);
beforeEach(() => void process.on("warning", onWarning));
afterEach(() => {
  process.off("warning", onWarning);
  warnings.length = 0;
});

test("a step that fails again and again reaches the smallest after few failures", () => {
  const run = fc.record({
    numTokens: fc.integer({ min: 1, max: 4096 }),
    numSequences: fc.integer({ min: 1, max: 300 }),
  });
  fc.assert(
    fc.property(run, fc.constantFrom(1, 64, 300), (wanted, fewestTokens) => {
      const limit = new StepLimit(fewestTokens);
      let failed: FailedRun = { ...wanted, numTokens: Math.max(wanted.numTokens, wanted.numSequences) };
      let numFailures = 0;
      for (; limit.canShrink(failed); numFailures++) {
        limit.shrink(failed, "");
        const numSequences = Math.min(failed.numSequences, limit.maxSequences, Math.max(limit.maxTokens, 1));
        failed = { numSequences, numTokens: Math.max(numSequences, Math.min(failed.numTokens, limit.maxTokens)) };
      }
      expect(numFailures).toBeLessThanOrEqual(24);
      expect(failed.numSequences).toBe(1);
      expect(failed.numTokens).toBeLessThanOrEqual(Math.max(fewestTokens, 1));
    }),
  );
});

test("larger steps are tried after successes, later each time, and the log has the first failure", async () => {
  const limit = new StepLimit(1);
  const stepsUntilFree = (): number => {
    for (let steps = 1; ; steps++) {
      limit.noteSuccess(512, 8);
      if (limit.maxTokens === Infinity) return steps;
    }
  };
  limit.shrink({ numTokens: 512, numSequences: 8 }, "first reason");
  expect([limit.maxTokens, limit.maxSequences]).toEqual([256, Infinity]);
  expect(stepsUntilFree()).toBe(32);
  limit.shrink({ numTokens: 512, numSequences: 8 }, "second reason");
  limit.shrink({ numTokens: 256, numSequences: 8 }, "third reason");
  expect(limit.maxTokens).toBe(128);
  expect(stepsUntilFree()).toBe(256);
  await expect.poll(() => warnings.some((text) => text.includes("second reason"))).toBe(true);
  expect(warnings.filter((text) => /first reason|third reason/.test(text))).toEqual([
    expect.stringMatching(/no memory for a step \(tokens: 512, sequences: 8\).*first reason/),
  ]);
});

test("a step of newest tokens only loses sequences, and its prompts keep their chunks", () => {
  const limit = new StepLimit(1);
  limit.shrink({ numTokens: 8, numSequences: 8 }, "");
  expect([limit.maxTokens, limit.maxSequences]).toEqual([Infinity, 4]);
});
