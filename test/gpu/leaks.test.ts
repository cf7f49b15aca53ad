/** Memory of the device and of the process over thousands of steps. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { collectGarbage } from "../../engine/runtime/collect-garbage.ts";
import { cudaMemoryBytes } from "../../engine/runtime/cuda-memory.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { createWorkerOptions, SteppedEngine } from "../engine/core/golden-engine.ts";
import { mixedRequest } from "../engine/core/mixed-requests.ts";
import { loadGoldens } from "../support/checkpoints/goldens.ts";
import { testDevices } from "../support/devices/test-devices.ts";
import { buildModel } from "../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { collectReport } from "./collect-report.ts";
import { loadGraph } from "./experiment.ts";
import { buildAttention } from "./paged-attention.ts";
import type { AttentionShape } from "./paged-attention.ts";

const MIB = 2 ** 20;
const maxModelLen = 128;
/** Of a size that sequences need several of. */
const blockSize = 16;
/** One sequence of full length, another block and the scratch block. */
const numBlocks = maxModelLen / blockSize + 2;

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

  test.for(["slots", "paged"] as const)("10,000 steps of an engine over %s leave no memory behind", async (kind) => {
    const { checkpointFolder, cases } = await loadGoldens("llama");
    const cacheFolder = join(folder.path, "cache");
    const kvLayout = kind === "slots" ? ({ kind } as const) : ({ kind, blockSize } as const);
    const dtype = device === "cuda" ? "float16" : "float32";
    const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
    const model = await buildModel(checkpoint, { dtype, device, kvLayout, maxModelLen, cacheFolder, numThreads: 1 });
    const limits = { device, maxNumBatchedTokens: 64, ...(kind === "paged" && { numBlocks }) };
    using engine = await SteppedEngine.create({ ...createWorkerOptions(model, limits), maxModelLen });
    let numStarted = 0;
    const growth = await growthOf(() => {
      for (let step = 0; step < 5000; step++) {
        while (engine.generations.size < 8) {
          // Greedy and drawn tokens, penalties, biases and logprobs.
          engine.add(mixedRequest({ model, cases: cases.slice(0, 1) }, numStarted++, 16 + (numStarted % 5) * 8));
        }
        engine.step();
        for (const [id, { outputs }] of engine.generations) {
          if (outputs.at(-1)?.finishReason == null) continue;
          expect(engine.errorOf(id)).toBeNull();
          engine.generations.delete(id);
        }
      }
    });
    expect(growth).toBeLessThan(32 * MIB);
    expect(numStarted).toBeGreaterThan(500);
    expect(engine.stats.numPreemptions > 0).toBe(kind === "paged");
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
