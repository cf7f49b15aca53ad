import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { RANGE_BYTES } from "../../../../engine/weights/parallel-ranges.ts";
import { resolveCheckpoint } from "../../../../engine/weights/resolve-checkpoint.ts";
import type { ResolveCheckpointOptions } from "../../../../engine/weights/resolve-checkpoint.ts";
import {
  floatTensor,
  writeCheckpoint,
  writeShardedCheckpoint,
} from "../../../support/checkpoints/safetensors-writer.ts";
import {
  azureAccount,
  azureKey,
  noAzureIdentity,
  startAzureServer,
} from "../../../support/servers/object-stores/azure-server.ts";
import { startGcsServer } from "../../../support/servers/object-stores/gcs-server.ts";
import type { StoreServer } from "../../../support/servers/object-stores/store-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

interface Store {
  readonly scheme: "gs" | "az";
  readonly start: () => Promise<StoreServer>;
  readonly settings: (server: StoreServer) => Partial<ResolveCheckpointOptions>;
}

const stores: readonly Store[] = [
  { scheme: "gs", start: startGcsServer, settings: ({ url }) => ({ gcsEmulatorUrl: url }) },
  {
    scheme: "az",
    start: startAzureServer,
    settings: ({ url }) => ({
      azure: {
        accountName: null,
        connectionString: `AccountName=${azureAccount};AccountKey=${azureKey};BlobEndpoint=${url}/${azureAccount}`,
        accountKey: null,
        sasToken: null,
        identity: noAzureIdentity,
      },
    }),
  },
];

const waves = Float32Array.from({ length: 64 }, (_, index) => Math.sin(index));
const shards = [[floatTensor("a", [64], waves)], [floatTensor("b", [64], waves.map(Math.cos))]];
const shardedFiles = [
  "config.json",
  "model-00001-of-00002.safetensors",
  "model-00002-of-00002.safetensors",
  "model.safetensors.index.json",
  "tokenizer.json",
];
const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);

describe.for(stores)("a checkpoint on $scheme://", ({ scheme, start, settings }) => {
  let server: StoreServer;
  const reference = `${scheme}://bucket/models & more/tiny`;

  beforeAll(async () => {
    server = await start();
  });
  afterAll(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    server.disturb = null;
    server.objects.clear();
    server.pageSize = 1000;
    await upload((folder) => writeShardedCheckpoint(folder, {}, shards));
    server.log.length = 0;
  });

  async function upload(write: (folder: string) => Promise<void>): Promise<void> {
    await using folder = await createTemporaryFolder();
    await write(folder.path);
    await writeFile(join(folder.path, "tokenizer.json"), '{"ö": 1}');
    const put = (name: string, bytes: Buffer | string) => server.put("bucket", `models & more/tiny/${name}`, bytes);
    for (const name of await readdir(folder.path)) put(name, await readFile(join(folder.path, name)));
    for (const name of ["optimizer.pt", "original/config.json", "../escaped.json", "..\\escaped.json", "a<b>ö&.json"])
      put(name, "not needed");
    server.put("bucket", "models & more/tiny-2/config.json", "{}");
  }

  const resolveIn = (
    folder: { readonly path: string },
    options: Partial<ResolveCheckpointOptions> = {},
    address = reference,
  ): Promise<string> => resolveCheckpoint(address, { cacheFolder: folder.path, ...settings(server), ...options });
  const object = (name: string) => server.objects.get(`bucket/models & more/tiny/${name}`)!;

  test("downloads only the files of the checkpoint, from all pages of the list", async () => {
    await using folder = await createTemporaryFolder();
    server.pageSize = 2;
    const progress: [number, number][] = [];
    const path = await resolveIn(folder, { onProgress: ({ completed, total }) => progress.push([completed, total]) });
    expect((await readdir(path)).sort()).toEqual([".complete.json", ...shardedFiles]);
    expect(await readFile(join(path, "tokenizer.json"), "utf8")).toBe('{"ö": 1}');
    expect([...(await openCheckpoint(path, { cacheFolder: folder.path })).tensors.keys()].sort()).toEqual(["a", "b"]);
    expect(progress.at(-1)![0]).toBe(progress.at(-1)![1]);
    expect(server.log.filter((entry) => entry.startsWith("LIST")).length).toBeGreaterThan(2);
  });

  test("a second start costs one list, and a changed object another folder", async () => {
    await using folder = await createTemporaryFolder();
    const first = await resolveIn(folder);
    server.log.length = 0;
    expect(await resolveIn(folder, {}, `${reference}/`)).toBe(first);
    expect(server.log).toEqual(["LIST models & more/tiny/"]);
    server.put("bucket", "models & more/tiny/config.json", '{"a":1}');
    const second = await resolveIn(folder);
    expect(await readFile(join(second, "config.json"), "utf8")).toBe('{"a":1}');
    expect(await readFile(join(first, "config.json"), "utf8")).toBe("{}");
  });

  test("a large object comes in ranges side by side, and a broken one continues where it broke", async () => {
    await using folder = await createTemporaryFolder();
    const byteLength = 2 * RANGE_BYTES + 4000;
    const words = Uint32Array.from({ length: byteLength / 4 }, (_, index) => Math.imul(index, 2654435761));
    const large = { name: "large", dtype: "I32", shape: [words.length], bytes: new Uint8Array(words.buffer) } as const;
    server.objects.clear();
    await upload((path) => writeCheckpoint(path, {}, [large]));
    // No range is answered before two are requested, which never happens with sequential downloads.
    const { promise: twoAsked, resolve: passBoth } = Promise.withResolvers<void>();
    const asked: string[] = [];
    server.disturb = async (entry) => {
      if (!entry.includes("model.safetensors")) return;
      asked.push(entry.split(" ").at(-1)!);
      if (asked.length === 2) passBoth();
      await twoAsked;
      if (asked.length === 2) return { cut: true };
    };
    const path = await resolveIn(folder);
    expect(asked.length).toBeGreaterThan(3);
    const starts = asked.map((range) => Number(/(\d+)-/.exec(range)![1]));
    expect(starts.some((start) => start % RANGE_BYTES !== 0)).toBe(true);
    const { tensors } = await openCheckpoint(path, { cacheFolder: folder.path });
    const { file, byteOffset } = tensors.get("large")!;
    expect((await readFile(file)).subarray(byteOffset).equals(large.bytes)).toBe(true);
  });

  test("wrong bytes are downloaded once more, and then rejected", async () => {
    await using folder = await createTemporaryFolder();
    const flip = (bytes: Buffer): Buffer => Buffer.from(bytes.map((byte) => byte ^ 1));
    let numWrong = 0;
    server.disturb = (entry) => (entry.includes("00001-of") && numWrong++ === 0 ? { bytes: flip } : undefined);
    const path = await resolveIn(folder);
    expect(numWrong).toBe(2);
    expect((await openCheckpoint(path, { cacheFolder: folder.path })).tensors.size).toBe(2);

    await using other = await createTemporaryFolder();
    server.disturb = (entry) => (entry.includes("00001-of") ? { bytes: flip } : undefined);
    const { md5 } = object("model-00001-of-00002.safetensors");
    expect(await errorOf(resolveIn(other))).toMatchObject({
      code: "invalid_checkpoint",
      message: `The bytes of model-00001-of-00002.safetensors do not have the md5 ${md5} that the store lists. Upload the file again.`,
    });
    const files = await readdir(other.path, { recursive: true });
    expect(files.filter((name) => name.includes("00001-of"))).toEqual([]);
  });

  test("an object that changes or vanishes after the list is rejected, and the next start succeeds", async () => {
    await using folder = await createTemporaryFolder();
    const key = "models & more/tiny/model-00002-of-00002.safetensors";
    const { bytes } = object("model-00002-of-00002.safetensors");
    const whenRead = (change: () => void) => (entry: string) => {
      if (entry.includes("00002-of")) change();
    };
    server.disturb = whenRead(() => void server.put("bucket", key, bytes));
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_checkpoint",
      message: `${scheme}://bucket/${key} cannot be read: it changed during the download of the checkpoint.`,
    });
    await using other = await createTemporaryFolder();
    server.log.length = 0;
    server.disturb = whenRead(() => void server.objects.delete(`bucket/${key}`));
    expect(await errorOf(resolveIn(other))).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringContaining(`${scheme}://bucket/${key} cannot be read: it does not exist`),
    });
    server.disturb = null;
    server.put("bucket", key, bytes);
    server.log.length = 0;
    const path = await resolveIn(other);
    expect((await openCheckpoint(path, { cacheFolder: other.path })).tensors.size).toBe(2);
  });

  test("a busy server is asked again after the time it names", async () => {
    await using folder = await createTemporaryFolder();
    const failed = new Set<string>();
    server.disturb = (entry) => {
      if (failed.has(entry)) return;
      failed.add(entry);
      return { status: entry.startsWith("LIST") ? 503 : 429, headers: { "retry-after": "0" } };
    };
    const path = await resolveIn(folder);
    expect(failed.size).toBe(shardedFiles.length + 1);
    expect((await openCheckpoint(path, { cacheFolder: folder.path })).tensors.size).toBe(2);
  });

  test("a server that lies about sizes or ignores ranges is rejected", async () => {
    await using folder = await createTemporaryFolder();
    const isShard = (entry: string): boolean => entry.includes("00001-of");
    const size = object("model-00001-of-00002.safetensors").bytes.length;
    server.disturb = (entry) =>
      isShard(entry) ? { headers: { "content-range": `bytes 0-${size - 1}/${size + 9}` } } : undefined;
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringMatching(`is listed with ${size} bytes and served with ${size + 9}.`),
    });
    server.disturb = (entry) => (isShard(entry) ? { headers: { "content-range": `bytes 5-9/${size}` } } : undefined);
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_configuration",
      message: expect.stringContaining("the server does not support ranges of an object"),
    });
    server.disturb = (entry) => (isShard(entry) ? { status: 416 } : undefined);
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringContaining("it has fewer bytes than the store lists"),
    });
  });

  test("a checkpoint that the disk has no room for is rejected before its first byte", async () => {
    await using folder = await createTemporaryFolder();
    object("model-00002-of-00002.safetensors").listedSize = 2 ** 49;
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_configuration",
      setting: "cacheFolder",
      message: expect.stringMatching(
        /^The checkpoint needs 5368709[\d.]+ MiB more, and the disk of the cache folder has [\d.]+ MiB\.$/,
      ),
    });
    expect(server.log.filter((entry) => entry.includes("00001-of"))).toEqual([]);
  });

  test("leftovers of a killed download are removed before the room on the disk is compared", async () => {
    await using folder = await createTemporaryFolder();
    object("model-00002-of-00002.safetensors").listedSize = 2 ** 49;
    await errorOf(resolveIn(folder));
    const checkpoints = join(folder.path, "checkpoints");
    const [download = ""] = await readdir(checkpoints);
    await writeFile(join(checkpoints, download, "model-00001-of-00002.safetensors.a.partial"), "bytes");
    expect(await errorOf(resolveIn(folder))).toMatchObject({ message: expect.stringContaining("MiB more") });
    expect(await readdir(join(checkpoints, download))).not.toContainEqual(expect.stringMatching(/partial$/));
  });

  test("an object that is stored compressed is named, if it is needed", async () => {
    await using folder = await createTemporaryFolder();
    object("optimizer.pt").contentEncoding = "gzip";
    await resolveIn(folder);
    server.put("bucket", "models & more/tiny/config.json", '{"b":1}').contentEncoding = "gzip";
    expect(await errorOf(resolveIn(folder))).toMatchObject({
      code: "invalid_checkpoint",
      message: `${scheme}://bucket/models & more/tiny/config.json is stored with the content encoding gzip; upload it uncompressed.`,
    });
  });

  test("an absent bucket, an empty prefix and an unreachable server are named", async () => {
    await using folder = await createTemporaryFolder();
    expect(await errorOf(resolveIn(folder, {}, `${scheme}://nothing/models`))).toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(/^\w+:\/\/nothing\/models\/.* cannot be listed: it does not exist \(/),
    });
    expect(await errorOf(resolveIn(folder, {}, `${scheme}://bucket/models`))).toMatchObject({
      code: "invalid_checkpoint",
      message: `The checkpoint ${scheme}://bucket/models/ lacks config.json.`,
    });
    const gone = await start();
    await gone[Symbol.asyncDispose]();
    expect(await errorOf(resolveIn(folder, settings(gone)))).toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(/cannot be listed \(ECONNREFUSED\)\.$/),
    });
  });

  test("an abort ends the download and leaves no partial file", async () => {
    await using folder = await createTemporaryFolder();
    const controller = new AbortController();
    server.disturb = (entry) => {
      if (entry.includes("tokenizer.json")) controller.abort();
    };
    expect(await errorOf(resolveIn(folder, { signal: controller.signal }))).toMatchObject({ code: "aborted" });
    const files = await readdir(folder.path, { recursive: true });
    expect(files.filter((name) => name.endsWith(".partial") || name.endsWith("tokenizer.json"))).toEqual([]);
  });
});
