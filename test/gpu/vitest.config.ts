/** The device suites alone: none of them needs a program that tests of the service fetch from a network. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: [
      "test/gpu/**/*.test.ts",
      "test/engine/runtime/**/*.test.ts",
      "test/engine/kv/kv-cache.test.ts",
      "test/engine/core/paged-engine.test.ts",
    ],
    exclude: ["test/engine/runtime/webgpu.test.ts", "test/gpu/pack.test.ts"],
    globalSetup: ["test/support/devices/provide-devices.ts"],
    testTimeout: 300_000,
    hookTimeout: 300_000,
    pool: "forks",
    execArgv: ["--no-wasm-code-gc"],
    // One session of a device after the other: memory is measured.
    maxWorkers: 1,
    reporters: ["default"],
  },
});
