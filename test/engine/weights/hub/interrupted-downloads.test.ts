/** Downloads that break off, wait, or share their cache with another process. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { HubCache } from "../../../../engine/weights/hub/hub-cache.ts";
import { RANGE_BYTES } from "../../../../engine/weights/parallel-ranges.ts";
import { hubConfigOf } from "../../../support/checkpoints/hub-repository.ts";
import { sha256 } from "../../../support/servers/hub-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import {
  server,
  tiny,
  wantedFiles,
  resolveIn,
  errorOf,
  withLargeWeights,
  useTinyRepository,
} from "./tiny-repository.ts";

useTinyRepository();

test("a limited rate is waited for, but not for an hour", async () => {
  await using folder = await createTemporaryFolder();
  const limited = new Set<string>();
  let seconds = "0";
  server.disturb = ({ path }) => {
    if (limited.has(path)) return;
    limited.add(path);
    return { status: 429, headers: { "retry-after": seconds } };
  };
  await resolveIn(folder.path);
  expect(limited.size).toBeGreaterThan(wantedFiles.length);
  limited.clear();
  seconds = "3600";
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/limits the rate .* a token raises the limit. It asks to wait 3600 seconds/),
  });
});

test("a broken connection continues at the byte where it ended", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  let cutRange: string | undefined;
  server.disturb = ({ server: name, headers }) => {
    if (name !== "storage" || cutRange !== undefined || headers.range === undefined) return;
    cutRange = headers.range;
    return { cut: true };
  };
  const path = await resolveIn(folder.path);
  expect((await readFile(join(path, "model.safetensors"))).equals(bytes)).toBe(true);
  const [, start, end] = /(\d+)-(\d+)/.exec(cutRange!)!;
  const ranges = server.requests.flatMap(({ headers }) => headers.range ?? []);
  const continued = ranges.find((range) => range !== cutRange && range.endsWith(`-${end}`))!;
  expect(Number(/\d+/.exec(continued)![0])).toBeGreaterThan(Number(start));
});

test("an address that has expired is requested again", async () => {
  await using folder = await createTemporaryFolder();
  await withLargeWeights();
  let hasExpired = false;
  server.disturb = ({ server: name }) => {
    if (name !== "storage" || hasExpired) return;
    hasExpired = true;
    return { status: 403 };
  };
  await resolveIn(folder.path);
  const heads = server.requests.filter(({ method, path }) => method === "HEAD" && path.endsWith("model.safetensors"));
  expect(heads).toHaveLength(2);
});

test("a large file arrives in concurrent ranges, and an aborted download continues with the missing ones", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  const controller = new AbortController();
  let numAsked = 0;
  const { promise: twoAsked, resolve: passBoth } = Promise.withResolvers<void>();
  const partial = join(folder.path, "hub/models--org--tiny/blobs", sha256(bytes));
  const journalOf = (): Promise<string> => readFile(`${partial}.fovea.ranges`, "utf8");
  server.disturb = async ({ server: name, headers: { range } }) => {
    if (name !== "storage" || range === undefined) return;
    // No range is answered before two are requested, which never happens with sequential downloads.
    if (++numAsked === 2) passBoth();
    await twoAsked;
    if (!range.startsWith("bytes=0-")) return;
    // The last of all: the others are in the file by now.
    await expect.poll(async () => (await journalOf()).trim().split("\n").slice(1).sort()).toEqual(["1", "2", "3"]);
    controller.abort();
  };
  expect(await errorOf(resolveIn(folder.path, tiny, { signal: controller.signal }))).toMatchObject({ code: "aborted" });
  expect((await stat(`${partial}.fovea.incomplete`)).size).toBe(bytes.byteLength);
  server.disturb = null;
  server.requests.length = 0;
  const path = await resolveIn(folder.path);
  expect(server.requests.flatMap(({ headers }) => headers.range ?? [])).toEqual([`bytes=0-${RANGE_BYTES - 1}`]);
  expect((await readFile(join(path, "model.safetensors"))).equals(bytes)).toBe(true);
  expect((await readdir(join(partial, ".."))).filter((name) => name.includes("fovea"))).toEqual([]);
});

test("a partial file that was damaged is downloaded again from its start", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  const blobs = join(folder.path, "hub/models--org--tiny/blobs");
  await mkdir(blobs, { recursive: true });
  await writeFile(join(blobs, `${sha256(bytes)}.fovea.incomplete`), Buffer.alloc(bytes.byteLength));
  // The last line is torn.
  await writeFile(join(blobs, `${sha256(bytes)}.fovea.ranges`), `ranges of ${RANGE_BYTES} bytes\n1\n2`);
  const path = await resolveIn(folder.path);
  expect((await readFile(join(path, "model.safetensors"))).equals(bytes)).toBe(true);
});

test("what an earlier start or another process has written needs no more room on the disk", async () => {
  await using folder = await createTemporaryFolder();
  const mebibyte = 2 ** 20;
  const repository = { repository: "org/tiny", revision: "main", yieldsToFolder: false };
  const cache = new HubCache(folder.path, repository);
  const file = {
    path: "model.safetensors",
    byteLength: 8 * mebibyte,
    name: "model.safetensors",
    eTag: "any",
    hash: "sha256",
  } as const;
  expect(await cache.missingBytes([file])).toBe(8 * mebibyte);
  await mkdir(cache.blobFolder, { recursive: true });
  await writeFile(cache.partialPath(file), randomBytes(3 * mebibyte));
  // As a download does; the hole takes no room.
  await truncate(cache.partialPath(file), file.byteLength);
  const numBytes = await cache.missingBytes([file]);
  expect(numBytes).toBeLessThanOrEqual(5 * mebibyte);
  expect(numBytes).toBeGreaterThan(4 * mebibyte);
});

test("two processes download each file once", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  const child = fileURLToPath(new URL("../../../support/checkpoints/resolve-hub-child.ts", import.meta.url));
  const hub = JSON.stringify(hubConfigOf(server, join(folder.path, "hub")));
  let numLists = 0;
  const { promise: bothList, resolve: passBoth } = Promise.withResolvers<void>();
  server.disturb = async ({ path }) => {
    if (!path.includes("/tree/")) return;
    // Neither downloads before both have seen that everything is missing.
    if (++numLists === 2) passBoth();
    await bothList;
  };
  const run = (name: string): Promise<{ readonly stdout: string }> =>
    promisify(execFile)(process.execPath, [child, tiny, hub, join(folder.path, name)]);
  const [first, second] = await Promise.all([run("one"), run("two")]);
  expect(first.stdout).toBe(second.stdout);
  expect((await readFile(join(first.stdout, "model.safetensors"))).equals(bytes)).toBe(true);
  const ranges = server.requests.flatMap(({ headers }) => headers.range ?? []);
  expect(ranges).toHaveLength(4);
  expect(new Set(ranges).size).toBe(4);
});

test("a disk that is full in the middle is named, and the next start completes the download", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  const child = fileURLToPath(new URL("../../../support/checkpoints/resolve-hub-child.ts", import.meta.url));
  const hub = hubConfigOf(server, join(folder.path, "hub"));
  // No file may exceed 1 MB, which simulates a full disk.
  const limited = ["-c", 'ulimit -f 2048; exec "$0" "$@"', process.execPath, child];
  const run = promisify(execFile)("sh", [...limited, tiny, JSON.stringify(hub), join(folder.path, "fovea")]);
  await expect(run).rejects.toMatchObject({
    stderr: expect.stringMatching(
      /The hub cache cannot store model\.safetensors, which has \d+ bytes \(EFBIG: file too large\)/,
    ),
  });
  const path = await resolveIn(folder.path);
  expect((await readFile(join(path, "model.safetensors"))).equals(bytes)).toBe(true);
});
