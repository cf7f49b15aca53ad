import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { InputBatch } from "../../../engine/core/input-batch.ts";
import type { BatchUpdate } from "../../../engine/sampling/contract/logits-processor.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createRequest } from "../scheduler/create-scheduler.ts";

const sequences = new Map<string, Sequence>();

/** One sequence per letter, the same each time. */
function sequence(requestId: string): Sequence {
  const known = sequences.get(requestId) ?? new Sequence(createRequest(requestId));
  sequences.set(requestId, known);
  return known;
}

function createBatch(letters: string): InputBatch {
  const batch = new InputBatch();
  batch.replace(letters.split("").map(sequence));
  batch.takeBatchUpdate();
  return batch;
}

function lettersOf(batch: InputBatch): string {
  return batch.sequences.map(({ requestId }) => requestId).join("");
}

/** Computes the rows after an update only from the previous rows and the update, following the contract. */
function replay(rows: readonly (string | undefined)[], update: BatchUpdate | null): (string | undefined)[] {
  const replayed = [...rows];
  for (const index of update?.removed ?? []) replayed[index] = undefined;
  for (const { index, promptTokenIds } of update?.added ?? []) {
    const added = [...sequences.values()].find((candidate) => candidate.promptTokenIds === promptTokenIds);
    replayed[index] = added?.requestId;
  }
  for (const { from, to, directionality } of update?.moved ?? []) {
    const displaced = replayed[to];
    replayed[to] = replayed[from];
    replayed[from] = directionality === "swap" ? displaced : undefined;
  }
  return replayed;
}

describe("a batch update", () => {
  test("fills the lowest hole with the new row, the next with the last row, then swaps", () => {
    const batch = createBatch("ABCD");
    batch.replace(["B", "D", "E"].map(sequence));
    expect(lettersOf(batch)).toBe("EBD");
    batch.swap(0, 1);
    expect(lettersOf(batch)).toBe("BED");
    expect(batch.takeBatchUpdate()).toMatchObject({
      batchSize: 3,
      removed: [],
      added: [{ index: 0 }],
      moved: [
        { from: 3, to: 2, directionality: "unidirectional" },
        { from: 0, to: 1, directionality: "swap" },
      ],
    });
  });

  test("reports as removed only the holes behind the last row", () => {
    const batch = createBatch("ABCDE");
    batch.replace(["A", "C", "E"].map(sequence));
    expect(lettersOf(batch)).toBe("AEC");
    expect(batch.takeBatchUpdate()).toMatchObject({
      batchSize: 3,
      removed: [3],
      added: [],
      moved: [{ from: 4, to: 1, directionality: "unidirectional" }],
    });
  });

  test("moves past rows that were removed", () => {
    const batch = createBatch("ABCDEFG");
    batch.replace(["B", "D", "E", "G", "H"].map(sequence));
    expect(lettersOf(batch)).toBe("HBGDE");
    expect(batch.takeBatchUpdate()).toMatchObject({
      batchSize: 5,
      removed: [5],
      added: [{ index: 0 }],
      moved: [{ from: 6, to: 2, directionality: "unidirectional" }],
    });
  });

  test("lists all rows, highest first, when the batch becomes empty", () => {
    const batch = createBatch("ABC");
    batch.replace([]);
    expect(batch.takeBatchUpdate()).toEqual({ batchSize: 0, removed: [2, 1, 0], added: [], moved: [] });
  });

  test("announces a row again that was removed after a step, and plans with its hole", () => {
    const batch = createBatch("abc");
    batch.remove(sequence("b"));
    const all = ["a", "b", "c"].map(sequence);
    const order = (each: Sequence): number => (each.requestId === "c" ? 0 : 1);
    const planned = batch.plan(all, order).map(({ requestId }) => requestId);
    batch.replace(all);
    batch.groupBy(order);
    expect(batch.sequences.map(({ requestId }) => requestId)).toEqual(planned);
    const update = batch.takeBatchUpdate();
    expect(update!.added.map(({ index }) => index)).toEqual([1]);
    expect(replay(["a", undefined, "c"], update)).toEqual(planned);
  });

  test("is null when no row changed", () => {
    const batch = createBatch("ABC");
    batch.replace(["C", "A", "B"].map(sequence));
    expect(batch.takeBatchUpdate()).toBeNull();
  });

  test("contains the live list of output tokens", () => {
    const batch = new InputBatch();
    const added = new Sequence(createRequest("live"));
    batch.replace([added]);
    const update = batch.takeBatchUpdate();
    added.outputTokenIds.push(5);
    expect(update?.added[0]!.outputTokenIds).toEqual([5]);
  });

  test("keeps its own lists when the batch changes", () => {
    const batch = createBatch("AB");
    batch.replace([sequence("B")]);
    const update = batch.takeBatchUpdate();
    batch.replace([]);
    expect(update).toMatchObject({ batchSize: 1, removed: [], moved: [{ from: 1, to: 0 }] });
  });

  test("replayed on the previous rows, gives the current rows for any sequence of joins, leaves, returns and grouping", () => {
    const letters = "ABCDEFGHIJKL".split("");
    const steps = fc.array(fc.record({ present: fc.subarray(letters), groups: fc.infiniteStream(fc.nat(2)) }), {
      maxLength: 12,
    });
    fc.assert(
      fc.property(steps, (history) => {
        const batch = new InputBatch();
        let rows: (string | undefined)[] = [];
        for (const { present, groups } of history) {
          const groupOfLetter = new Map(letters.map((letter) => [letter, groups.next().value as number]));
          const groupOf = ({ requestId }: Sequence): number => groupOfLetter.get(requestId)!;
          const planned = batch.plan(present.map(sequence), groupOf);
          expect(lettersOf(batch)).toBe(rows.join(""));
          batch.replace(present.map(sequence));
          batch.groupBy(groupOf);
          expect(batch.sequences).toEqual(planned);
          const update = batch.takeBatchUpdate();
          rows = replay(rows, update).slice(0, batch.numRows);
          expect(rows.join("")).toBe(lettersOf(batch));
          expect(new Set(rows)).toEqual(new Set(present));
          expect(update?.batchSize ?? batch.numRows).toBe(present.length);
          const rowGroups = rows.map((letter) => groupOfLetter.get(letter!)!);
          expect(rowGroups).toEqual(rowGroups.toSorted((left, right) => left - right));
          for (const letter of present) expect(rows[batch.rowIndexOf(sequence(letter))]).toBe(letter);
          // Rows that were removed and rows that were added never share an index.
          const added = new Set(update?.added.map(({ index }) => index));
          expect(update?.removed.some((index) => added.has(index)) ?? false).toBe(false);
        }
      }),
    );
  });
});
