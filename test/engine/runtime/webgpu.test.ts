import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";

import { softwareGpuEnvironment } from "../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { attentionInputs } from "./attention-steps.ts";
import { writeAttentionModel, writeSumModel } from "./small-models.ts";
import { attendWithFourLanes } from "./small-subgroups.ts";
import type { WebGpuReport } from "./webgpu-attention.ts";

/** A software GPU compiles its kernels on the processors. */
const TIMEOUT_MS = 120_000;

const script = fileURLToPath(new URL("webgpu-attention.ts", import.meta.url));

let report: WebGpuReport;

beforeAll(async () => {
  await using folder = await createTemporaryFolder();
  const paths = [await writeAttentionModel(folder.path), await writeSumModel(folder.path)];
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...paths], {
    env: await softwareGpuEnvironment(),
  });
  report = JSON.parse(stdout) as WebGpuReport;
}, TIMEOUT_MS);

test("with tensors that stay on the device between runs, webgpu gives the CPU's numbers", () => {
  const { cpu, webgpu, doubledTwice, copiedBeside, allocated, afterDisposal } = report;

  expect(cpu.outputs.some((value) => value !== 0)).toBe(true);
  webgpu.outputs.forEach((value, index) => expect(value).toBeCloseTo(cpu.outputs[index]!, 5));
  expect(webgpu.keys).toEqual(cpu.keys);

  expect(doubledTwice).toEqual([4, 8, 12]);
  expect(copiedBeside).toEqual(doubledTwice);
  // `sum` was then bound to memory of ONNX Runtime's choice, with `second` = [2, 4, 6] still bound as both inputs.
  expect(allocated).toEqual({ isOnDevice: true, shape: [1, 3], data: [4, 8, 12] });
  expect(afterDisposal).toContain("used after its disposal");
});

test("one run of 31 tokens gives the CPU's numbers, one of 32 those of a kernel that needs larger subgroups", () => {
  const largestError = (actual: readonly number[], expected: ArrayLike<number>): number =>
    actual.reduce((largest, value, index) => Math.max(largest, Math.abs(value - expected[index]!)), 0);
  const [fewer, more] = report.prompts;
  expect([fewer!.numTokens, more!.numTokens]).toEqual([31, 32]);
  expect(largestError(fewer!.webgpu, fewer!.cpu)).toBeLessThan(1e-5);
  // Where this fails, SwiftShader or ONNX Runtime is mended: the tests' chunks may then be longer.
  expect(largestError(more!.webgpu, more!.cpu)).toBeGreaterThan(0.1);
  expect(largestError(more!.webgpu, attendWithFourLanes(attentionInputs(more!.numTokens)))).toBeLessThan(1e-5);
});

test("a machine without a Vulkan driver gets an error, not a crash", async () => {
  await using folder = await createTemporaryFolder();
  const paths = [await writeAttentionModel(folder.path), await writeSumModel(folder.path)];
  const run = promisify(execFile)(process.execPath, [script, ...paths], {
    env: { ...(await softwareGpuEnvironment()), VK_DRIVER_FILES: "/nowhere/icd.json" },
  });
  await expect(run).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(/EngineError.*WebGPU adapter/s) });
});
