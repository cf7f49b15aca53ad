/** Archives in parts, and the script that joins them, with small files. */
import { spawnSync } from "node:child_process";
import { createReadStream } from "node:fs";
import { copyFile, mkdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

import { archiveFile, archiveFolder, writeManifest } from "../../package/gpu-pack/archives.ts";
import type { Archive } from "../../package/gpu-pack/archives.ts";
import { installedPackages } from "../../package/gpu-pack/installed-packages.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { randomNumbers } from "./numbers.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const partBytes = 10_000;
let folder: TemporaryFolder;
let pack: string;

beforeEach(async () => {
  folder = await createTemporaryFolder();
  pack = join(folder.path, "pack");
  await mkdir(pack);
});

afterEach(() => folder[Symbol.asyncDispose]());

/** A pack whose "node" is a script that runs the Node of this test. */
async function writePack(): Promise<Archive[]> {
  const node = join(folder.path, "node");
  await writeFile(node, `#!/bin/sh\nexec '${process.execPath}' "$@"\n`);
  const source = join(folder.path, "source");
  await mkdir(join(source, "deep/folder with spaces"), { recursive: true });
  // Numbers do not compress, so the parts are several.
  await writeFile(join(source, "deep/folder with spaces/numbers"), Buffer.from(randomNumbers(12_000, 1).buffer));
  await writeFile(join(source, "text"), "a text\n");
  await symlink("text", join(source, "link"));
  const options = { folder: pack, partBytes };
  const archives = [
    await archiveFile("node", createReadStream(node), options),
    await archiveFolder("code", source, options),
  ];
  writeManifest(pack, archives, { commit: "none" });
  await copyFile(join(repository, "test/gpu/assemble.sh"), join(pack, "assemble.sh"));
  return archives;
}

/** With nothing in the environment but the system's programs. */
function assemble(target: string): { readonly status: number | null; readonly stderr: string } {
  return spawnSync("/bin/sh", [join(pack, "assemble.sh"), target], {
    env: { PATH: "/usr/bin:/bin" },
    cwd: "/",
    encoding: "utf8",
  });
}

test("parts are at most as large as asked, and the manifest adds up", async () => {
  const archives = await writePack();
  const manifest = JSON.parse(await readFile(join(pack, "MANIFEST.json"), "utf8"));
  expect(manifest.archives).toEqual(archives);
  expect(archives[1]!.parts.length).toBeGreaterThan(3);
  let total = 0;
  for (const { name, bytes } of archives.flatMap(({ parts }) => parts)) {
    expect((await stat(join(pack, name))).size).toBe(bytes);
    expect(bytes).toBeLessThanOrEqual(partBytes);
    total += bytes;
  }
  expect(manifest.bytes).toBe(total);
});

test("the script puts together what was packed", async () => {
  await writePack();
  const target = join(folder.path, "assembled here");
  expect(assemble(target)).toMatchObject({ status: 0, stderr: "" });
  const numbers = await readFile(join(target, "deep/folder with spaces/numbers"));
  expect(numbers.equals(Buffer.from(randomNumbers(12_000, 1).buffer))).toBe(true);
  expect(await readFile(join(target, "link"), "utf8")).toBe("a text\n");
  expect((await stat(join(target, "bin/node"))).mode & 0o111).not.toBe(0);
});

test("the script names the parts that are missing or damaged, and unpacks nothing", async () => {
  const [first, second] = (await writePack())[1]!.parts.map(({ name }) => name);
  const target = join(folder.path, "assembled");
  const bytes = await readFile(join(pack, first!));
  bytes[17]! ^= 1;
  await writeFile(join(pack, first!), bytes);
  expect(assemble(target)).toMatchObject({ status: 1, stderr: expect.stringContaining(`${first}: FAILED`) });
  await rm(join(pack, second!));
  expect(assemble(target)).toMatchObject({
    status: 1,
    stderr: expect.stringMatching(`not here yet:.*${second}`),
  });
  await expect(stat(target)).rejects.toMatchObject({ code: "ENOENT" });
});

test("the packages of a pack are those that run the service and the tests, with their own", async () => {
  const packages = installedPackages(repository, ["vitest"]);
  for (const name of ["koffi", "sharp", "onnxruntime-node", "zod", "vitest", "vite"]) {
    expect(packages).toContain(`node_modules/${name}`);
  }
  expect(
    packages.some((path) => path.startsWith("node_modules/@koromix/koffi-linux-x64") || path === "node_modules/koffi"),
  ).toBe(true);
  for (const name of ["typescript", "oxlint", "assemblyscript"]) expect(packages).not.toContain(`node_modules/${name}`);
  for (const path of packages) expect(await readFile(join(repository, path, "package.json"), "utf8")).toContain("{");
  expect(() => installedPackages(repository, ["no-such-package"])).toThrow(
    /no-such-package, which the repository needs/,
  );
});
