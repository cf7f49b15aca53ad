import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { softwareGpuEnvironment } from "../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeAttentionModel, writeSumModel } from "./small-models.ts";
import type { WebGpuReport } from "./webgpu-attention.ts";

const script = fileURLToPath(new URL("webgpu-attention.ts", import.meta.url));

test("with tensors that stay on the device between runs, webgpu gives the CPU's numbers", async () => {
  await using folder = await createTemporaryFolder();
  const paths = [await writeAttentionModel(folder.path), await writeSumModel(folder.path)];
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...paths], {
    env: await softwareGpuEnvironment(),
  });
  const { cpu, webgpu, doubledTwice, allocated, afterDisposal } = JSON.parse(stdout) as WebGpuReport;

  expect(cpu.outputs.some((value) => value !== 0)).toBe(true);
  webgpu.outputs.forEach((value, index) => expect(value).toBeCloseTo(cpu.outputs[index], 5));
  expect(webgpu.keys).toEqual(cpu.keys);

  expect(doubledTwice).toEqual([4, 8, 12]);
  // `sum` was then bound to memory of ONNX Runtime's choice, with `second` = [2, 4, 6] still bound as both inputs.
  expect(allocated).toEqual({ isOnDevice: true, shape: [1, 3], data: [4, 8, 12] });
  expect(afterDisposal).toContain("used after its disposal");
});

test("a machine without a Vulkan driver gets an error, not a crash", async () => {
  await using folder = await createTemporaryFolder();
  const paths = [await writeAttentionModel(folder.path), await writeSumModel(folder.path)];
  const run = promisify(execFile)(process.execPath, [script, ...paths], {
    env: { ...(await softwareGpuEnvironment()), VK_DRIVER_FILES: "/nowhere/icd.json" },
  });
  await expect(run).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(/EngineError.*WebGPU adapter/s) });
});
