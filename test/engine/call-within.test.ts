import { expect, test } from "vitest";

import { callWithin, CallTimeout } from "../../engine/call-within.ts";

const nothing = new Int32Array(new SharedArrayBuffer(4));

test("a call that computes for too long is interrupted", () => {
  const compute = (): never => {
    for (;;) Math.random();
  };
  expect(() => callWithin(50, compute)).toThrow(CallTimeout);
});

test("a call that the machine did not run in time is repeated", () => {
  let numCalls = 0;
  const call = (): string => {
    // Like a busy machine: the time passes, and the thread does not run.
    if (++numCalls < 3) Atomics.wait(nothing, 0, 0);
    return "done";
  };
  expect(callWithin(50, call)).toBe("done");
  // Or once more, if the machine really is that busy.
  expect(numCalls).toBeGreaterThanOrEqual(3);
});

test("a call that never runs is interrupted at last", () => {
  expect(() => callWithin(10, () => Atomics.wait(nothing, 0, 0))).toThrow("did not return within 10 ms");
});

test("errors of the call are its own", () => {
  const fail = (): never => {
    throw new RangeError("its own");
  };
  expect(() => callWithin(1000, fail)).toThrow(new RangeError("its own"));
});
