import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

import packageJson from "./package.json" with { type: "json" };

// Set here, so that the processes of the tests inherit it. functions/cli/main.js uses the same folder.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");
// Services of the tests compute in one thread each. Several run at once, and waiting threads of ONNX Runtime spin.
process.env.NUM_THREADS ??= "1";

export default defineConfig({
  // `fovea` resolves to the sources, not to the package that `npm run build` makes. An alias, because our own conditions
  // would also apply to packages, some of which would then resolve to files that Node cannot load.
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
      "test/support/programs/compile-cache.ts",
    ],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Polling waits for events, on machines of any speed.
    expect: { poll: { timeout: 30_000 } },
    // Each test file has its own native state of ONNX Runtime.
    pool: "forks",
    // Like keepWasmCode(), for tests that start threads without an engine.
    execArgv: ["--no-wasm-code-gc"],
    maxWorkers: 3,
    reporters: ["default"],
  },
});
