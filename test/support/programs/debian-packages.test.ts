import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../temporary-folder.ts";
import { run } from "./cache-folder.ts";
import { writeLaunchers } from "./debian-packages.ts";

test("packages with a folder bin of their own get launchers in it", async () => {
  await using folder = await createTemporaryFolder();
  for (const name of ["bin", "usr/bin"]) await mkdir(join(folder.path, name), { recursive: true });
  await symlink(process.execPath, join(folder.path, "usr/bin/node"));
  await writeLaunchers(folder.path, folder.path, ["node", "not-in-the-package"]);
  expect(await run(join(folder.path, "bin/node"), ["--print", "6 * 7"])).toBe("42\n");
});
