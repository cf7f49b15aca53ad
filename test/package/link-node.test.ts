/** The last script of `npm ci`, in a folder as npm 10 leaves it. */
import { execFile } from "node:child_process";
import { cp, mkdir, readlink, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const script = fileURLToPath(new URL("../../package/link-node.js", import.meta.url));
const packageOfNode = `node-${process.platform}-${process.arch}`;

async function createInstallation(): Promise<TemporaryFolder> {
  const folder = await createTemporaryFolder();
  await cp(script, join(folder.path, "package", "link-node.js"));
  await writeFile(join(folder.path, "package.json"), JSON.stringify({ type: "module" }));
  return folder;
}

async function addNode(folder: TemporaryFolder): Promise<void> {
  const program = join(folder.path, "node_modules", packageOfNode, "bin", "node");
  await cp(process.execPath, program, { recursive: true });
}

const linkOf = (folder: TemporaryFolder): string => join(folder.path, "node_modules", ".bin", "node");

const linkNode = (folder: TemporaryFolder) =>
  promisify(execFile)(process.execPath, [join(folder.path, "package", "link-node.js")]);

test.for(["no link", "a link that leads nowhere"])("the packaged Node is linked where there is %s", async (state) => {
  await using folder = await createInstallation();
  await addNode(folder);
  await mkdir(join(folder.path, "node_modules", ".bin"));
  if (state !== "no link") await symlink("../gone/bin/node", linkOf(folder));
  await linkNode(folder);
  const { stdout } = await promisify(execFile)(linkOf(folder), ["--version"]);
  expect(stdout.trim()).toBe(process.version);
});

test("npm's own link stays, and without a packaged Node there is no link", async () => {
  await using folder = await createInstallation();
  await linkNode(folder);
  await expect(readlink(linkOf(folder))).rejects.toMatchObject({ code: "ENOENT" });
  await addNode(folder);
  await mkdir(join(folder.path, "node_modules", ".bin"));
  await symlink(process.execPath, linkOf(folder));
  await linkNode(folder);
  expect(await readlink(linkOf(folder))).toBe(process.execPath);
});
