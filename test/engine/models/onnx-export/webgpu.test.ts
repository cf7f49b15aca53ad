import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { softwareGpuEnvironment } from "../../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const script = fileURLToPath(new URL("webgpu-answer.ts", import.meta.url));

test("on webgpu, an export answers with the tokens of transformers", async () => {
  await using folder = await createTemporaryFolder();
  const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
    env: await softwareGpuEnvironment(),
  });
  const { expected, tokenIds } = JSON.parse(stdout) as Record<"expected" | "tokenIds", readonly number[]>;
  expect(tokenIds).toEqual(expected);
  expect(tokenIds).toHaveLength(4);
});
