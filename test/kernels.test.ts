import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const kernels = ["engine/images/kernel/filter", "engine/sampling/kernel/logits"];

test.for(kernels)("%s.wasm equals the output of `npm run build:kernels`", async (kernel) => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-kernel-"));
  try {
    const compiled = join(folder, "compiled.wasm");
    // In a separate process, because the compiler's types would become global to every file here.
    const compiler = "node_modules/assemblyscript/bin/asc.js";
    const config = join(kernel, "../asconfig.json");
    const options = ["--config", config, "--target", "release", "--outFile", compiled];
    await promisify(execFile)(process.execPath, [compiler, `${kernel}.ts`, ...options]);
    expect(await readFile(compiled)).toEqual(await readFile(`${kernel}.wasm`));
  } finally {
    await rm(folder, { recursive: true });
  }
});
