import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeSumModel } from "./small-models.ts";
import type { SumThreadData } from "./sum-thread.ts";

async function sumInThread(data: SumThreadData): Promise<Float32Array> {
  const worker = new Worker(new URL("sum-thread.ts", import.meta.url), { workerData: data });
  const exited = once(worker, "exit");
  const [sum] = (await once(worker, "message")) as [Float32Array];
  expect(await exited).toEqual([0]);
  return sum;
}

test("two threads run their own sessions at once, and again after both have ended", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  for (let round = 0; round < 3; round++) {
    const sums = await Promise.all(
      [1, 2].map((value) =>
        sumInThread({ path, numbers: new Float32Array(100).fill(value), numRuns: 2000, isTidy: true }),
      ),
    );
    expect(sums).toEqual([new Float32Array(100).fill(2), new Float32Array(100).fill(4)]);
  }
});

test("a thread that ends with a loaded session does not affect others", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  const data = { path, numbers: Float32Array.of(1), numRuns: 1 };
  expect(await sumInThread({ ...data, isTidy: false })).toEqual(Float32Array.of(2));
  expect(await sumInThread({ ...data, isTidy: true })).toEqual(Float32Array.of(2));
});
