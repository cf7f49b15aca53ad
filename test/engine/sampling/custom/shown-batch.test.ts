import { expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { AddedRequest } from "../../../../engine/sampling/contract/logits-processor.ts";
import { ShownBatch } from "../../../../engine/sampling/custom/shown-batch.ts";

function addedRequest(index: number, outputTokenIds: readonly number[] = []): AddedRequest {
  return { index, params: createSamplingParams(), promptTokenIds: [1, 2], outputTokenIds };
}

test("the shown lists grow with the outputs, through moves and after a preemption", () => {
  const outputs: number[][] = [[], [10], []];
  const batch = new ShownBatch();
  const added = outputs.map((output, index) => addedRequest(index, output));
  const shown = batch.update({ batchSize: 3, removed: [], added, moved: [] })!;
  const lists = shown.added.map(({ outputTokenIds }) => outputTokenIds);
  outputs[0]!.push(5);
  outputs[2]!.push(6, 7);
  batch.update({
    batchSize: 2,
    removed: [1],
    added: [],
    moved: [{ from: 2, to: 1, directionality: "unidirectional" }],
  });
  expect(lists).toEqual([[5], [10], [6, 7]]);
  expect(batch.rows.map(({ outputTokenIds }) => outputTokenIds)).toEqual([[5], [6, 7]]);
  outputs[2]!.push(8);
  batch.update(null);
  expect(lists[2]).toEqual([6, 7, 8]);
});

test("a list whose length a processor has changed is correct again in the next step", () => {
  const output = [1, 2, 3];
  const batch = new ShownBatch();
  const shown = batch.update({ batchSize: 1, removed: [], added: [addedRequest(0, output)], moved: [] })!;
  const list = shown.added[0]!.outputTokenIds as number[];
  for (const harm of [() => list.push(9), () => list.pop(), () => (list.length = 0), () => list.push(9, 9, 9)]) {
    harm();
    output.push(4);
    batch.update(null);
    expect(list).toEqual(output);
  }
});
