/** What `fovea check` says about a GPU, for cards whose size is given here. */
import { expect, test } from "vitest";

import { inspectModel } from "../../../engine/index.ts";
import type { GpuInspection, ModelInspection } from "../../../engine/index.ts";
import { fitOf, formatReport } from "../../../functions/cli/check-report.ts";
import { loadConfig } from "../../../functions/settings/config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const mebibyte = 2 ** 20;
const contextBytes = 560 * mebibyte;

function cardOf(memoryBytes: number, computeCapability = "8.9"): GpuInspection {
  const name = "NVIDIA L4";
  return {
    kind: "usable",
    device: { name, memoryBytes, computeCapability, driverCudaVersion: "13.0", numDevices: 1 },
  };
}

async function check(gpu: GpuInspection, environment: Readonly<Record<string, string>> = {}) {
  await using cache = await createTemporaryFolder();
  const config = loadConfig({ DEVICE: "cuda", MAX_NUM_SEQS: "4", CACHE_FOLDER: cache.path, ...environment });
  const inspection = await inspectModel(config.engine, {}, new AbortController().signal, gpu);
  const fit = fitOf(config, inspection);
  const report = { config, inspection, gpu, fit, remoteSettings: [], isRunWanted: false, measured: null };
  return { inspection, fit, text: formatReport(report) };
}

function planOf({ gpuPlan }: ModelInspection): NonNullable<ModelInspection["gpuPlan"]> {
  if (gpuPlan === null) throw new Error("the GPU's memory is planned");
  return gpuPlan;
}

test("blocks take what weights and activations leave of the card, and the report says how many tokens fit", async () => {
  const { inspection, fit, text } = await check(cardOf(2048 * mebibyte), { GPU_MEMORY_UTILIZATION: "0.5" });
  const { weights, kvCache } = inspection.memory;
  const plan = planOf(inspection);
  expect(plan.weightBytes).toBe(weights.embedding + weights.decoder + weights.visionEncoder);
  expect(plan.activationBytes).toBeGreaterThan(0);
  expect(plan.kvRoomBytes).toBe(1024 * mebibyte - plan.weightBytes - plan.activationBytes - contextBytes);
  // 2 * 4 layers * 2 heads * 32 numbers * 2 bytes, 256 times.
  const blockBytes = 256 * 1024;
  const numBlocks = Math.floor(plan.kvRoomBytes / blockBytes);
  expect(kvCache.blocks).toEqual({ blockSize: 256, numBlocks, numTokens: (numBlocks - 1) * 256 });
  expect(fit).toBe("fits");
  const numTokens = (numBlocks - 1) * 256;
  expect(text).toMatch(
    new RegExp(
      `^ {2}KV cache +\\d.* about ${numBlocks} blocks of 256 tokens: ${numTokens} tokens at once; sequences`,
      "m",
    ),
  );
  expect(text).toMatch(/^ {2}GPU, allowed +1\.0 GiB +GPU_MEMORY_UTILIZATION=0\.5 of 2\.0 GiB$/m);
  expect(text).toContain(
    `Fits, by estimate: the GPU has room for ${Math.floor(numTokens / 2048)} sequences of 2048 tokens at once.`,
  );
});

test("a type that the card cannot compute is rejected as at a start", async () => {
  const card = cardOf(2048 * mebibyte, "7.5");
  await expect(check(card, { DTYPE: "bfloat16" })).rejects.toMatchObject({
    code: "invalid_configuration",
    setting: "dtype",
    message: expect.stringMatching(/compute capability 7\.5, and bfloat16.*Set dtype to float16/),
  });
  expect((await check(card, { DTYPE: "float16" })).fit).toBe("fits");
});

test("a vision encoder on the CPU, and smaller steps, leave more for keys and values", async () => {
  const card = cardOf(2048 * mebibyte);
  const all = planOf((await check(card)).inspection);
  const { inspection } = await check(card, { VISION_DEVICE: "cpu" });
  expect(planOf(inspection).weightBytes).toBe(inspection.memory.weights.embedding + inspection.memory.weights.decoder);
  expect(planOf(inspection).kvRoomBytes).toBeGreaterThan(all.kvRoomBytes);
  const small = planOf((await check(card, { MAX_NUM_BATCHED_TOKENS: "64" })).inspection);
  expect(small.activationBytes).toBeLessThan(all.activationBytes);
});

test("a card that is too small gets a length that fits, or is too small for all lengths", async () => {
  const large = planOf((await check(cardOf(2048 * mebibyte))).inspection);
  const usedBytes = large.weightBytes + large.activationBytes + contextBytes;
  // Five blocks of 256 KiB: one holds no tokens.
  const scarce = await check(cardOf(usedBytes + 5.5 * 256 * 1024), { GPU_MEMORY_UTILIZATION: "1" });
  expect(scarce.fit).toBe("does not fit");
  expect(scarce.text).toMatch(/^DOES NOT FIT, by estimate: keys and values of 1 sequence of 2048 tokens take /m);
  expect(scarce.text).toContain("It fits with MAX_MODEL_LEN=1024.");
  const fitting = { GPU_MEMORY_UTILIZATION: "1", MAX_MODEL_LEN: "1024" };
  expect((await check(cardOf(usedBytes + 5.5 * 256 * 1024), fitting)).fit).toBe("fits");
  const tiny = await check(cardOf(usedBytes / 2));
  expect(tiny.text).toMatch(/^Use a smaller DTYPE, a lower MAX_NUM_BATCHED_TOKENS, /m);
});

test("slots need full length for all sequences, and the report says how many fit", async () => {
  const settings = { KV_LAYOUT: "slots", MAX_MODEL_LEN: "2048", GPU_MEMORY_UTILIZATION: "1" };
  const ample = await check(cardOf(2048 * mebibyte), settings);
  expect(ample.fit).toBe("fits");
  expect(ample.text).toMatch(/^ {2}KV cache +8\.0 MiB +reserved for 4 sequences$/m);
  const { weightBytes, activationBytes } = planOf(ample.inspection);
  const scarce = await check(cardOf(weightBytes + activationBytes + contextBytes + 7 * mebibyte), settings);
  expect(scarce.text).toContain("It fits with MAX_NUM_SEQS=3 or MAX_MODEL_LEN=1792.");
});

test("without a card the verdict says why it is unknown, and the least number of blocks stays", async () => {
  const { inspection, fit, text } = await check({ kind: "unusable", reason: "This machine has no NVIDIA driver." });
  expect([inspection.gpuPlan, fit]).toEqual([null, "unknown"]);
  expect(text).toMatch(/^ {2}KV cache +2\.3 MiB +at least: 9 blocks of 256 tokens: 2048 tokens, one sequence$/m);
  expect(text).toContain(
    "Cannot tell whether it fits: the size of the GPU's memory is unknown here. This machine has no NVIDIA driver.",
  );
});
