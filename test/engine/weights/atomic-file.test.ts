import { mkdir, open, readdir, readFile, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { writeAtomically } from "../../../engine/weights/atomic-file.ts";
import { tryLock } from "../../../engine/weights/flock.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const write = (file: string): Promise<void> =>
  writeAtomically(file, "12 bytes of weights", (temporaryFile) => writeFile(temporaryFile, "some weights"));

test("missing folders are created, by several writers at once", async () => {
  await using folder = await createTemporaryFolder();
  const files = Array.from({ length: 8 }, (_, index) => join(folder.path, "a", "b", "c", `${index}.bin`));
  await Promise.all(files.map(write));
  expect(await readdir(join(folder.path, "a", "b", "c"))).toHaveLength(8);
  expect(await readFile(files[0]!, "utf8")).toBe("some weights");
});

test.for<[string, (folder: string) => Promise<string> | string]>([
  [
    "that is a file",
    async (folder) => {
      await writeFile(join(folder, "cache"), "");
      return join(folder, "cache");
    },
  ],
  [
    "below a file",
    async (folder) => {
      await writeFile(join(folder, "cache"), "");
      return join(folder, "cache", "fovea");
    },
  ],
  [
    "that is a link that leads nowhere",
    async (folder) => {
      await symlink(join(folder, "gone", "further"), join(folder, "cache"));
      return join(folder, "cache");
    },
  ],
  // Node's recursive mkdir never returns there.
  ["in which the system makes no folders", () => "/proc/fovea"],
])("a cache folder %s is rejected with the system's reason, without its path", async ([, cacheFolderIn]) => {
  await using folder = await createTemporaryFolder();
  const cacheFolder = await cacheFolderIn(folder.path);
  const error = await write(join(cacheFolder, "weights", "a.bin")).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "invalid_configuration", setting: "cacheFolder" });
  expect((error as Error).message).toMatch(/^The cache folder cannot store 12 bytes of weights \(E[A-Z]+: [^/]+\)\.$/);
});

test("a failed write leaves nothing behind, and other errors are thrown unchanged", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "a.bin");
  const fail = (message: string): Promise<void> =>
    writeAtomically(file, "weights", async (temporaryFile) => {
      await writeFile(temporaryFile, "half");
      throw new Error(message);
    });
  // An error from a thread, of which only the message remains.
  await expect(fail("ENOSPC: no space left on device, write")).rejects.toMatchObject({
    code: "invalid_configuration",
    message: "The cache folder cannot store weights (ENOSPC: no space left on device).",
  });
  await expect(fail("a bug")).rejects.toThrow("a bug");
  await mkdir(join(folder.path, "other"));
  expect(await readdir(folder.path)).toEqual(["other"]);
});

test("a temporary file is removed when its writer has ended, and not before", async () => {
  await using folder = await createTemporaryFolder();
  const [dead, empty, old] = ["dead", "empty", "old"].map((name) => join(folder.path, `${name}.partial`));
  await writeFile(dead!, "bytes");
  // A writer may be about to lock it.
  await writeFile(empty!, "");
  await writeFile(old!, "");
  await utimes(old!, 0, 0);
  await writeAtomically(join(folder.path, "a.bin"), "weights", async (temporaryFile) => {
    await writeFile(temporaryFile, "bytes of a");
    await write(join(folder.path, "b.bin"));
  });
  expect((await readdir(folder.path)).sort()).toEqual(["a.bin", "b.bin", "empty.partial"]);
  expect(await readFile(join(folder.path, "a.bin"), "utf8")).toBe("bytes of a");
});

test("a lock is taken, held by another, or not supported by the file", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "lock");
  await using first = await open(file, "a");
  await using second = await open(file, "a");
  expect([tryLock(first.fd), tryLock(second.fd)]).toEqual(["locked", "held by another"]);
  const closed = await open(file, "a");
  const { fd } = closed;
  await closed.close();
  // Stands for a file system that has no locks: nothing waits for them.
  expect(tryLock(fd)).toBe("unsupported");
});
