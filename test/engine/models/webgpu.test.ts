import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { softwareGpuEnvironment } from "../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { WebGpuDecoderReport } from "./webgpu-decoder.ts";

const script = fileURLToPath(new URL("webgpu-decoder.ts", import.meta.url));

test("on webgpu, answers about a picture equal those of transformers, and the graphs of every precision load", async () => {
  await using folder = await createTemporaryFolder();
  const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
    env: await softwareGpuEnvironment(),
  });
  const report = JSON.parse(stdout) as WebGpuDecoderReport;
  expect(report.featureError).toBeLessThan(1e-4);
  expect(report.logitError).toBeLessThan(1e-4);
  expect(report.loaded).toEqual(["float16", "float16", "int8", "int8", "int4", "int4"]);
});
