import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

test("the compiled kernel is what `npm run build:kernel` makes of its source", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-kernel-"));
  try {
    const compiled = join(folder, "filter.wasm");
    // In a process of its own: the compiler's types would become global to every file here.
    const compiler = "node_modules/assemblyscript/bin/asc.js";
    const options = ["--config", "engine/images/kernel/asconfig.json", "--target", "release", "--outFile", compiled];
    await promisify(execFile)(process.execPath, [compiler, "engine/images/kernel/filter.ts", ...options]);
    expect(await readFile(compiled)).toEqual(await readFile("engine/images/kernel/filter.wasm"));
  } finally {
    await rm(folder, { recursive: true });
  }
});
