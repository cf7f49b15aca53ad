/** The device suites alone: none of them needs a program that tests of the service fetch from a network. */
import { defineConfig } from "vitest/config";

import { deviceSuites } from "../support/devices/device-suites.ts";

export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    // The files that take a device; devices.test.ts compares them with this list.
    include: deviceSuites,
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
