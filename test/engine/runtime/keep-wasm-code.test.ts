import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const script = fileURLToPath(new URL("dropped-wasm-code.ts", import.meta.url));

async function collections(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...args]);
  return stdout;
}

test("V8 discards WebAssembly machine code that is no longer called", async () => {
  expect(await collections()).toContain("[wasm-gc] Starting GC");
});

test("in a process that has had an engine, V8 keeps it", async () => {
  await using folder = await createTemporaryFolder();
  expect(await collections(folder.path)).not.toContain("Starting GC");
});
