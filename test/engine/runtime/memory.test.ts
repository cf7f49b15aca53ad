import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeSumModel } from "./small-models.ts";

const script = fileURLToPath(new URL("memory-growth.ts", import.meta.url));

// Twice the noise of the garbage collector; keeping one array of ten would take more.
const mostGrowth = 100 * 2 ** 20;

test("thousands of tensors, bindings, outputs, errors and sessions leak no memory", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  const { stdout } = await promisify(execFile)(process.execPath, ["--expose-gc", script, path]);
  const growth = JSON.parse(stdout) as Record<string, number>;
  expect(Object.keys(growth)).toEqual(["tensorsAndBindings", "fetchedOutputs", "errors", "sessions"]);
  expect(Object.entries(growth).filter(([, bytes]) => bytes > mostGrowth)).toEqual([]);
});
