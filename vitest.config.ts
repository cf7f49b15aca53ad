import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Polling waits for what must happen, on machines of any speed.
    expect: { poll: { timeout: 30_000 } },
    // Each test file holds ONNX Runtime's native state of its own.
    pool: "forks",
    maxWorkers: 2,
    reporters: ["default"],
  },
});
