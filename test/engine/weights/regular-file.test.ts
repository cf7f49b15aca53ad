import { execFileSync } from "node:child_process";
import { mkdir, open, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { readRegularFile } from "../../../engine/weights/regular-file.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

test.for<[string, (path: string, folder: string) => unknown, string]>([
  ["a folder", (path) => mkdir(path), "config.json is a folder, not a file."],
  // Opening it normally would wait for a writer.
  ["a named pipe", (path) => execFileSync("mkfifo", [path]), "config.json is a named pipe, not a file."],
  ["a device without an end", (path) => symlink("/dev/zero", path), "config.json is a device, not a file."],
  [
    "a link that leads nowhere",
    (path, folder) => symlink(join(folder, "gone"), path),
    "config.json is a link to a file that does not exist.",
  ],
  [
    "a link to itself",
    (path) => symlink(path, path),
    "config.json cannot be read (ELOOP: too many symbolic links encountered).",
  ],
  [
    "a file of a gigabyte",
    async (path) => {
      await using file = await open(path, "w");
      await file.truncate(1024 ** 3);
    },
    "config.json has 1073741824 bytes; the limit for this kind of file is 268435456.",
  ],
])("%s is rejected at once, by name and kind", async ([, make, message]) => {
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "config.json");
  await make(path, folder.path);
  await expect(readRegularFile(path)).rejects.toMatchObject({ code: "invalid_checkpoint", message });
});

test("a file is read, also through a link, and an absent one is null", async () => {
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "config.json");
  expect(await readRegularFile(path)).toBe(null);
  await writeFile(join(folder.path, "blob"), "{}");
  await symlink(join(folder.path, "blob"), path);
  expect((await readRegularFile(path))?.toString()).toBe("{}");
});
