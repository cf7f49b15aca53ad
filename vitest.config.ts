import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

// Here, so that the processes of the tests inherit it. The same folder as functions/cli/main.js takes.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");

export default defineConfig({
  // `fovea` means the sources here, not the package that `npm run build` makes. The other conditions are Vite's defaults.
  ssr: { resolve: { conditions: ["fovea-source", "module", "node", "development|production"] } },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/programs/provide-programs.ts", "test/support/compile-cache.ts"],
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
