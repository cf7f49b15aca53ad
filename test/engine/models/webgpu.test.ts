import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { WebGpuDecoderReport } from "./webgpu-decoder.ts";

const script = fileURLToPath(new URL("webgpu-decoder.ts", import.meta.url));
const softwareVulkan = "/usr/lib/chromium/vk_swiftshader_icd.json";

test("on webgpu a picture is encoded and talked about as by transformers, and every precision's graphs load", async () => {
  if (!existsSync(softwareVulkan)) {
    throw new Error(`${softwareVulkan} is missing. Install it: bash test/support/install-test-servers.sh`);
  }
  await using folder = await createTemporaryFolder();
  const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
    env: { ...process.env, VK_DRIVER_FILES: softwareVulkan },
  });
  const report = JSON.parse(stdout) as WebGpuDecoderReport;
  expect(report.featureError).toBeLessThan(1e-4);
  expect(report.logitError).toBeLessThan(1e-4);
  expect(report.loaded).toEqual(["float16", "float16", "int8", "int8", "int4", "int4"]);
});
