import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const script = fileURLToPath(new URL("webgpu-answer.ts", import.meta.url));
const softwareVulkan = "/usr/lib/chromium/vk_swiftshader_icd.json";

test("on webgpu an export answers with the tokens of transformers", async () => {
  if (!existsSync(softwareVulkan)) {
    throw new Error(`${softwareVulkan} is missing. Install it: bash test/support/install-test-servers.sh`);
  }
  await using folder = await createTemporaryFolder();
  const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
    env: { ...process.env, VK_DRIVER_FILES: softwareVulkan },
  });
  const { expected, tokenIds } = JSON.parse(stdout) as Record<"expected" | "tokenIds", readonly number[]>;
  expect(tokenIds).toEqual(expected);
  expect(tokenIds).toHaveLength(4);
});
