import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { MAX_OVERTAKES, WaitingQueue } from "../../../engine/scheduler/waiting-queue.ts";
import { createRequest, createScheduler, describeStep, resultsOf } from "./create-scheduler.ts";

function createSequence(arrival: number, priority: number): Sequence {
  return new Sequence(createRequest(`${arrival}`, { priority }), arrival);
}

function takeFrom(queue: WaitingQueue): Sequence {
  const next = queue.next();
  if (next === null) throw new Error("The queue is empty.");
  queue.take(next);
  return next;
}

test("lower priorities go first, equal ones by arrival, preempted sequences before later ones", () => {
  const queue = new WaitingQueue();
  for (const [arrival, priority] of [0, 5, 0, -1, 5].entries()) queue.add(createSequence(arrival, priority));
  const first = takeFrom(queue);
  const second = takeFrom(queue);
  expect([first.arrival, second.arrival]).toEqual([3, 0]);
  queue.add(second);
  expect([0, 1, 2, 3].map(() => takeFrom(queue).arrival)).toEqual([0, 2, 1, 4]);
  expect(queue.next()).toBeNull();
});

test("the oldest sequence is admitted after a bounded number of others, again and again", () => {
  const queue = new WaitingQueue();
  for (const arrival of [0, 1, 2]) queue.add(createSequence(arrival, 1000));
  let arrival = 3;
  const taken: number[] = [];
  for (let count = 0; count < 3 * (MAX_OVERTAKES + 1); count++) {
    queue.add(createSequence(arrival++, 0));
    taken.push(takeFrom(queue).priority);
  }
  const late = taken.flatMap((priority, index) => (priority === 1000 ? [index] : []));
  expect(late).toEqual([1, 2, 3].map((turn) => turn * (MAX_OVERTAKES + 1) - 1));
});

test("any arrivals, admissions and aborts keep the order, and no sequence is lost or waits for ever", () => {
  const operation = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({ kind: fc.constant("add"), priority: fc.constantFrom(0, 0, 0, 0, -3, 1, 1000) }),
    },
    { weight: 6, arbitrary: fc.record({ kind: fc.constant("take") }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("abort"), index: fc.nat() }) },
  );
  let numStarving = 0;
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 400, size: "max" }), (operations) => {
      const queue = new WaitingQueue();
      let waiting: Sequence[] = [];
      /** Admissions since the sequence arrived, and the number of older ones that waited then. */
      const waited = new Map<Sequence, { numTaken: number; readonly numOlder: number }>();
      let numArrived = 0;
      const take = (): void => {
        const byUrgency = waiting.toSorted((a, b) => a.priority - b.priority || a.arrival - b.arrival);
        const oldest = waiting.toSorted((a, b) => a.arrival - b.arrival)[0];
        const taken = takeFrom(queue);
        expect([byUrgency[0], oldest]).toContain(taken);
        if (taken !== byUrgency[0]) numStarving += 1;
        waiting = waiting.filter((sequence) => sequence !== taken);
        waited.delete(taken);
        for (const [, entry] of waited) entry.numTaken += 1;
        for (const [, { numTaken, numOlder }] of waited) {
          expect(numTaken).toBeLessThan((numOlder + 1) * (MAX_OVERTAKES + 1));
        }
      };
      for (const each of operations) {
        if ("priority" in each) {
          const sequence = createSequence(numArrived++, each.priority);
          waited.set(sequence, { numTaken: 0, numOlder: waiting.length });
          waiting.push(sequence);
          queue.add(sequence);
        } else if ("index" in each) {
          const sequence = waiting.at(each.index % Math.max(waiting.length, 1));
          if (sequence === undefined) continue;
          sequence.finishReason = "abort";
          queue.dropFinished();
          waiting = waiting.filter((other) => other !== sequence);
          waited.delete(sequence);
        } else if (waiting.length > 0) {
          take();
        }
        expect(queue.length).toBe(waiting.length);
      }
      while (waiting.length > 0) take();
      expect(queue.next()).toBeNull();
    }),
    { numRuns: 300 },
  );
  expect(numStarving).toBeGreaterThan(10);
});

describe("a scheduler", () => {
  test("admits an urgent request before those that wait already, and lets running ones finish", () => {
    const parts = createScheduler({ numSlots: 1 });
    const step = (): string[] => {
      const scheduled = parts.scheduler.schedule();
      parts.scheduler.update(scheduled, resultsOf(scheduled));
      return describeStep(scheduled);
    };
    const samplingParams = { maxTokens: 2 };
    const steps: string[][] = [];
    for (const [name, priority] of [
      ["line 1", 1000],
      ["line 2", 1000],
      ["asked", 0],
    ] as const) {
      parts.scheduler.add(createRequest(name, { priority, samplingParams }));
      if (name === "line 1") steps.push(step());
    }
    while (parts.scheduler.hasUnfinished) steps.push(step());
    const order = steps.map(([first]) => first?.split(":")[0]);
    expect(order).toEqual(["line 1", "line 1", "asked", "asked", "line 2", "line 2"]);
  });
});
