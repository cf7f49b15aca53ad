import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

import packageJson from "./package.json" with { type: "json" };

// Here, so that the processes of the tests inherit it. The same folder as functions/cli/main.js takes.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");

export default defineConfig({
  // `fovea` means the sources here, not the package that `npm run build` makes. An alias, because conditions of our own
  // would also apply to packages, and some of these resolve to files that Node cannot load then.
  resolve: {
    alias: Object.entries(packageJson.exports).flatMap(([name, target]) =>
      typeof target === "string"
        ? []
        : [
            {
              find: new RegExp(`^fovea${name.slice(1)}$`),
              replacement: join(import.meta.dirname, target["fovea-source"]),
            },
          ],
    ),
  },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: [
      "test/support/programs/provide-programs.ts",
      "test/support/devices/provide-devices.ts",
      "test/support/compile-cache.ts",
    ],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Polling waits for what must happen, on machines of any speed.
    expect: { poll: { timeout: 30_000 } },
    // Each test file holds ONNX Runtime's native state of its own.
    pool: "forks",
    // As keepWasmCode() does; here for the tests of parts that start threads without an engine.
    execArgv: ["--no-wasm-code-gc"],
    maxWorkers: 2,
    reporters: ["default"],
  },
});
