import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { createTemporaryFolder } from "../temporary-folder.ts";
import { ensureFolder, run, writeLauncher } from "./cache-folder.ts";

const content = {
  name: "program-1",
  description: "a program",
  fill: async (folder: string): Promise<void> => {
    await writeFile(join(folder, "first"), "1");
    await nextTurn();
    await writeFile(join(folder, "last"), "2");
  },
};

// Hides its messages, which are not part of the report.
beforeEach(() => void vi.spyOn(process.stderr, "write").mockReturnValue(true));
afterEach(() => vi.restoreAllMocks());

test("a folder is filled once", async () => {
  await using cache = await createTemporaryFolder();
  const folder = await ensureFolder(content, cache.path);
  expect(folder).toBe(join(cache.path, "program-1"));
  expect(await readFile(join(folder, "last"), "utf8")).toBe("2");
  const fillAgain = () => Promise.reject(new Error("filled again"));
  expect(await ensureFolder({ ...content, fill: fillAgain }, cache.path)).toBe(folder);
});

test("two runs that fill a folder at once both get all of it and leave nothing else", async () => {
  await using cache = await createTemporaryFolder();
  const folders = await Promise.all([ensureFolder(content, cache.path), ensureFolder(content, cache.path)]);
  expect(new Set(folders).size).toBe(1);
  expect(await readdir(folders[0])).toEqual(["first", "last"]);
  expect(await readdir(cache.path)).toEqual(["program-1"]);
});

test("a fill that fails midway leaves nothing, and the next one succeeds", async () => {
  await using cache = await createTemporaryFolder();
  const fill = async (folder: string): Promise<void> => {
    await content.fill(folder);
    throw new Error("cut off");
  };
  await expect(ensureFolder({ ...content, fill }, cache.path)).rejects.toThrow("cut off");
  expect(await readdir(cache.path)).toEqual([]);
  await ensureFolder(content, cache.path);
  expect(await readdir(cache.path)).toEqual(["program-1"]);
});

test("a launcher sets variables and passes arguments unchanged", async () => {
  await using folder = await createTemporaryFolder();
  const launcher = join(folder.path, "it's a launcher");
  const script = "console.log(JSON.stringify([process.env.GREETING, ...process.argv.slice(1)]))";
  await writeLauncher(launcher, [process.execPath, "--eval", script, "--"], { GREETING: "it's $HOME" });
  expect(JSON.parse(await run(launcher, ["a b", "$PATH", "'"]))).toEqual(["it's $HOME", "a b", "$PATH", "'"]);
});

test("a command that fails is an error with the end of its error output", async () => {
  const script = "for (let line = 1; line <= 9; line++) console.error('line', line); process.exitCode = 3";
  await expect(run(process.execPath, ["--eval", script])).rejects.toThrow(
    /^node failed: line 6\nline 7\nline 8\nline 9$/,
  );
});
