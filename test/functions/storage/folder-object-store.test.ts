import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { folderId } from "../../../functions/storage/folder-id.ts";
import { tryLockFolder } from "../../../functions/storage/folder-lock.ts";
import { createFolderObjectStore, removeLeftovers } from "../../../functions/storage/folder-object-store.ts";
import { StorageError, writeText } from "../../../functions/storage/object-store.ts";
import { testObjectStore } from "../../contracts/object-store.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

testObjectStore("folder", { open: async () => createFolderObjectStore(join(folder.path, "contract")) });

test("files are readable by their owner only, and a broken write leaves no file", async () => {
  const path = join(folder.path, "private");
  const store = createFolderObjectStore(path);
  await writeText(store, "files/a", "secret");
  expect((await stat(join(path, "files"))).mode & 0o777).toBe(0o700);
  expect((await stat(join(path, "files/a"))).mode & 0o777).toBe(0o600);
  async function* broken(): AsyncGenerator<Uint8Array> {
    yield Buffer.from("half");
    throw new Error("cut off");
  }
  await expect(store.write("files/b", broken())).rejects.toThrow("cut off");
  expect(await readdir(join(path, "files"))).toEqual(["a"]);
});

test("a folder that is not writable is reported as an error of the store", async () => {
  const path = join(folder.path, "a-file");
  await writeFile(path, "");
  const store = createFolderObjectStore(path);
  await expect(writeText(store, "files/a", "x")).rejects.toThrow(StorageError);
  await expect(writeText(store, "files/a", "x")).rejects.toThrow(/^Writing failed: ENOTDIR/);
});

test("a folder below one that takes no folders is reported, and holds no thread", async () => {
  const store = createFolderObjectStore("/proc/fovea/batches");
  await expect(writeText(store, "files/a", "x")).rejects.toThrow(/Writing failed: ENOENT/);
  await expect(folderId("/proc/fovea/batches")).rejects.toThrow(StorageError);
  expect(() => tryLockFolder("/proc/fovea/batches", "batches")).toThrow("ENOENT");
});

test("unfinished files of a killed process are removed after a day", async () => {
  const path = join(folder.path, "leftovers");
  const store = createFolderObjectStore(path);
  await writeText(store, "files/a", "x");
  await writeFile(join(path, "files/.writing-0"), "half");
  const { mtimeMs } = await stat(join(path, "files/.writing-0"));
  await removeLeftovers(path, mtimeMs + 60 * 60 * 1000);
  expect(await readdir(join(path, "files"))).toEqual([".writing-0", "a"]);
  await removeLeftovers(path, mtimeMs + 25 * 60 * 60 * 1000);
  expect(await readdir(join(path, "files"))).toEqual(["a"]);
  await removeLeftovers(join(path, "absent"), mtimeMs);
});

test("a lock has one holder among all processes, and is released when that process is killed", async () => {
  const path = join(folder.path, "locked");
  const program = `
    import { tryLockFolder } from ${JSON.stringify(new URL("../../../functions/storage/folder-lock.ts", import.meta.url).href)};
    process.stdout.write(tryLockFolder(${JSON.stringify(path)}, "jobs") === null ? "refused" : "held");
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  expect(said.toString()).toBe("held");
  expect(tryLockFolder(path, "jobs")).toBeNull();
  tryLockFolder(path, "others")?.release();
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
  const lock = tryLockFolder(path, "jobs");
  expect(lock).not.toBeNull();
  lock?.release();
});
