import { expect, test } from "vitest";

import { StepProgress, StepWatchdog } from "../../../engine/thread/step-progress.ts";
import type { StepStall } from "../../../engine/thread/step-progress.ts";

/** Checks are 100 ms apart. A step is stalled after 10 of them, and lastingly after 20. */
function createWatched() {
  const progress = new StepProgress();
  const changes: (StepStall | null)[] = [];
  const watchdog = new StepWatchdog(progress, { timeoutMs: 1000, onChange: (stall) => changes.push(stall) });
  const look = (numTimes: number): void => {
    for (let time = 0; time < numTimes; time++) watchdog.look();
  };
  return { progress, changes, look };
}

test("a step is reported at the limit, at twice the limit, and when it ends", () => {
  const { progress, changes, look } = createWatched();
  progress.beginStep();
  progress.enterProcessor(3);
  look(10);
  expect(changes).toEqual([]);
  look(1);
  const activity = { kind: "processor", index: 3 };
  expect(changes).toEqual([{ elapsedMs: 1000, activity, isLasting: false }]);
  look(9);
  expect(changes).toHaveLength(1);
  look(1);
  expect(changes[1]).toEqual({ elapsedMs: 2000, activity, isLasting: true });
  look(50);
  expect(changes).toHaveLength(2);
  progress.endStep();
  look(1);
  expect(changes[2]).toBe(null);
});

test("a run of the vision encoder that does not end is reported although steps go on", () => {
  const { progress, changes, look } = createWatched();
  progress.beginEncoding();
  for (let check = 0; check < 21; check++) {
    progress.beginStep();
    progress.enter("model");
    progress.endStep();
    look(1);
  }
  const activity = { kind: "model" };
  expect(changes).toEqual([
    { elapsedMs: 1000, activity, isLasting: false },
    { elapsedMs: 2000, activity, isLasting: true },
  ]);
  progress.endEncoding();
  progress.beginEncoding();
  look(1);
  expect(changes[2]).toBe(null);
});

test("an idle engine, or one whose steps end between checks, is never reported", () => {
  const { progress, changes, look } = createWatched();
  look(100);
  for (let step = 0; step < 100; step++) {
    progress.beginStep();
    progress.enter("model");
    look(9);
  }
  progress.endStep();
  look(100);
  expect(changes).toEqual([]);
});

test("a stall ends when another step has started, even if no check saw the engine idle", () => {
  const { progress, changes, look } = createWatched();
  progress.beginStep();
  progress.enter("model");
  look(11);
  progress.endStep();
  progress.beginStep();
  look(1);
  expect(changes).toEqual([{ elapsedMs: 1000, activity: { kind: "model" }, isLasting: false }, null]);
});
