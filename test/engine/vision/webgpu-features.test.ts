import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { softwareGpuEnvironment } from "../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { WebGpuFeaturesReport } from "./webgpu-features.ts";

/** A software GPU compiles and runs every kernel on the processors. */
const TIMEOUT_MS = 300_000;

const script = fileURLToPath(new URL("webgpu-features.ts", import.meta.url));

test(
  "on webgpu features stay on the device, and prompts with one and three pictures get transformers' tokens",
  async () => {
    await using folder = await createTemporaryFolder();
    const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
      env: await softwareGpuEnvironment(),
    });
    const { answers, numOnHost, numOnDevice } = JSON.parse(stdout) as WebGpuFeaturesReport;
    expect(answers.length).toBeGreaterThan(1);
    for (const { tokenIds, expected } of answers) expect(tokenIds).toEqual(expected);
    expect(numOnDevice).toBeGreaterThan(1);
    expect(numOnHost).toBe(0);
  },
  TIMEOUT_MS,
);
