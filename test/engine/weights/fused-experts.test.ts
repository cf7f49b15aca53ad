import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../engine/weights/prepare-weights.ts";
import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import { floatTensor, writeCheckpoint } from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const [numExperts, width, hidden] = [3, 4, 5];
/** Element [expert, row, column] of one of the three projections. */
const element = (part: number, expert: number, row: number, column: number): number =>
  1000 * part + 100 * expert + 10 * row + column;

function tensorOf(name: string, shape: readonly number[], at: (e: number, i: number, j: number) => number) {
  const [experts, rows, columns] = shape as readonly [number, number, number];
  const values = Float32Array.from({ length: experts * rows * columns }, (_, index) =>
    at(Math.trunc(index / (rows * columns)), Math.trunc(index / columns) % rows, index % columns),
  );
  return floatTensor(name, shape, values);
}

/** Output `row` of gate and up projection side by side. */
const gateOrUp = (expert: number, row: number, column: number): number =>
  row < width ? element(0, expert, row, column) : element(1, expert, row - width, column);

async function valuesOf({ file, byteOffset, byteLength }: StoredTensor): Promise<number[]> {
  const bytes = await readFile(file);
  return [...new Float32Array(Uint8Array.from(bytes.subarray(byteOffset, byteOffset + byteLength)).buffer)];
}

test.for([
  {
    order: "outputs before inputs",
    gateUp: tensorOf("mlp.experts.gate_up_proj", [numExperts, 2 * width, hidden], gateOrUp),
    down: tensorOf("mlp.experts.down_proj", [numExperts, hidden, width], (e, i, j) => element(2, e, i, j)),
    isInPlace: true,
  },
  {
    order: "inputs before outputs",
    gateUp: tensorOf("mlp.experts.gate_up_proj", [numExperts, hidden, 2 * width], (e, i, j) => gateOrUp(e, j, i)),
    down: tensorOf("mlp.experts.down_proj", [numExperts, width, hidden], (e, i, j) => element(2, e, j, i)),
    isInPlace: false,
  },
])("experts in one tensor with $order are those of single matrices", async ({ gateUp, down, isInPlace }) => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [gateUp, down]);
  const cacheFolder = join(folder.path, "cache");
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder });
  const parts = ["gate_proj", "up_proj", "down_proj"].entries().toArray();
  const cases = Array.from({ length: numExperts }, (_, expert) => expert).flatMap((expert) =>
    parts.map(([part, name]) => ({ part, expert, name: `mlp.experts.${expert}.${name}.weight` })),
  );
  expect([...checkpoint.tensors.keys()].sort()).toEqual(cases.map(({ name }) => name).sort());
  const shapeOf = (part: number): [number, number] => (part === 2 ? [hidden, width] : [width, hidden]);
  const format = { kind: "plain", elementType: "float32" } as const;
  const requests = cases.map(({ name, part }) => ({ name, sources: [name], shape: shapeOf(part), format }));
  const prepared = await prepareWeights(checkpoint, requests, { cacheFolder, numThreads: 1 });
  for (const { name, part, expert } of cases) {
    const { weight } = prepared.get(name)!;
    const [rows, columns] = shapeOf(part);
    const expected = Array.from({ length: rows * columns }, (_, index) =>
      element(part, expert, Math.trunc(index / columns), index % columns),
    );
    expect(await valuesOf(weight)).toEqual(expected);
    expect(weight.file === join(folder.path, "model.safetensors")).toBe(isInPlace);
  }
});

test("experts whose projections do not fit each other are rejected with both shapes", async () => {
  await using folder = await createTemporaryFolder();
  const tensors = [
    tensorOf("mlp.experts.gate_up_proj", [2, 6, 5], () => 1),
    tensorOf("mlp.experts.down_proj", [2, 5, 4], () => 1),
  ];
  await writeCheckpoint(folder.path, {}, tensors);
  await expect(openCheckpoint(folder.path, { cacheFolder: folder.path })).rejects.toThrow(
    "Tensors mlp.experts.gate_up_proj [2, 6, 5] and mlp.experts.down_proj [2, 5, 4] are not the matrices of the same experts",
  );
});
