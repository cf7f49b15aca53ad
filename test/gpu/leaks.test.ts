/** Memory of the device and of the process over thousands of steps. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { collectGarbage } from "../../engine/runtime/collect-garbage.ts";
import { cudaMemoryBytes } from "../../engine/runtime/cuda-memory.ts";
import { testDevices } from "../support/devices/test-devices.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { collectReport } from "./collect-report.ts";
import { loadGraph } from "./experiment.ts";
import { buildAttention, randomBatch, runAttention } from "./paged-attention.ts";
import type { AttentionShape } from "./paged-attention.ts";

const MIB = 2 ** 20;

describe.for(testDevices)("on %s", (device) => {
  let folder: TemporaryFolder;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
  });

  afterAll(() => folder[Symbol.asyncDispose]());

  const elementType = device === "cuda" ? "float16" : "float32";
  const usedBytes = (): number => {
    if (device === "cpu") return process.memoryUsage().rss;
    const { totalBytes, freeBytes } = cudaMemoryBytes(0);
    return totalBytes - freeBytes;
  };

  /** Bytes that are in use after `work`, beyond what was in use after it had run once before. */
  async function growthOf(work: () => void): Promise<number> {
    work();
    await collectGarbage();
    const before = usedBytes();
    work();
    await collectGarbage();
    return usedBytes() - before;
  }

  const shape: AttentionShape = {
    elementType,
    numHeads: 2,
    numKvHeads: 1,
    headDim: 64,
    localWindowSize: null,
    blockSize: device === "cuda" ? 256 : 16,
  };

  test("10,000 steps over views of one allocation leave no memory behind", async () => {
    const context = { device, folder: folder.path, dtype: null, report: collectReport(folder.path) };
    using session = loadGraph(context, "leaks", buildAttention(device, shape));
    const batch = randomBatch(shape, [{ past: 20, length: 1 }], 3);
    const growth = await growthOf(() => {
      for (let round = 0; round < 20; round++) runAttention(session, shape, batch, { numRepeats: 500 });
    });
    expect(growth).toBeLessThan(32 * MIB);
  });

  test("tensors, views and bindings that are disposed of leave no memory behind", async () => {
    const context = { device, folder: folder.path, dtype: null, report: collectReport(folder.path) };
    using session = loadGraph(context, "disposal", buildAttention(device, shape));
    const growth = await growthOf(() => {
      for (let round = 0; round < 2000; round++) {
        using whole = session.allocateTensor("float32", [64, 1024]);
        using view = whole.view(1024, [2, 1024]);
        using binding = session.createBinding();
        expect(view.isOnDevice).toBe(device !== "cpu");
        binding.clearInputs();
      }
    });
    expect(growth).toBeLessThan(32 * MIB);
  });
});
