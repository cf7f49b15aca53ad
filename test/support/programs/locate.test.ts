import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { locate } from "./locate.ts";
import { MissingProgramError } from "./missing-program.ts";

const program = {
  name: "A program",
  variable: "FOVEA_TEST_PROGRAM",
  fetch: () => Promise.resolve("/cache/program"),
  system: ["no-such-program", "sh"],
  debianPackages: "a-program",
};
const cannotFetch = () => Promise.reject(new Error("the network is down"));

// Hides its messages about other programs than the pinned one, which are not part of the report.
beforeEach(() => void vi.spyOn(process.stderr, "write").mockReturnValue(true));
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

test("the user's own program is preferred to the pinned one", async () => {
  vi.stubEnv("FOVEA_TEST_PROGRAM", process.execPath);
  expect(await locate(program)).toBe(process.execPath);
});

test("the pinned program is preferred to the system's", async () => {
  expect(await locate(program)).toBe("/cache/program");
});

test.for([
  ["cannot be fetched", cannotFetch],
  ["does not exist for this platform", null],
] as const)("if the pinned program %s, the system's is used", async ([, fetch]) => {
  expect(await locate({ ...program, fetch })).toMatch(/^\/.*\/sh$/);
});

test("a missing program is an error with the reason and a command", async () => {
  const locating = locate({ ...program, fetch: cannotFetch, system: ["no-such-program"] });
  await expect(locating).rejects.toThrow(MissingProgramError);
  await expect(locating).rejects.toThrow(/A program: .*the network is down\n.*apt-get install -y a-program/);
});

test("a variable that does not name a program is an error, even if the pinned one exists", async () => {
  vi.stubEnv("FOVEA_TEST_PROGRAM", "/nowhere/program");
  await expect(locate(program)).rejects.toThrow(
    /FOVEA_TEST_PROGRAM names \/nowhere\/program.*\n.*unset FOVEA_TEST_PROGRAM/,
  );
});

test("a test run without one of its programs ends before the first test and names it", async () => {
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  const running = promisify(execFile)(
    process.execPath,
    ["node_modules/vitest/vitest.mjs", "run", "test/kernels.test.ts"],
    {
      cwd: root,
      env: { ...process.env, CHROMIUM: "/nowhere/chromium" },
    },
  );
  await expect(running).rejects.toMatchObject({
    code: 1,
    stdout: expect.not.stringContaining("Test Files"),
    stderr: expect.stringContaining("Chromium: CHROMIUM names /nowhere/chromium"),
  });
});
