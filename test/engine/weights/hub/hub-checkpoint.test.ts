import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, readlink, rm, stat, symlink, truncate, writeFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import type { HubConfig } from "../../../../engine/contract/config.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { RANGE_BYTES } from "../../../../engine/weights/parallel-ranges.ts";
import { resolveCheckpoint } from "../../../../engine/weights/resolve-checkpoint.ts";
import type { ResolveCheckpointOptions } from "../../../../engine/weights/resolve-checkpoint.ts";
import { hubConfigOf, readRepository, textFile } from "../../../support/hub-repository.ts";
import { commitOf, gitHash, sha256, startHubServer } from "../../../support/hub-server.ts";
import type { HubFileContent, HubRepositoryContent, HubServer } from "../../../support/hub-server.ts";
import { floatTensor, writeCheckpoint, writeShardedCheckpoint } from "../../../support/safetensors-writer.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

let server: HubServer;
let sharded: Map<string, HubFileContent>;

const waves = Float32Array.from({ length: 64 }, (_, index) => Math.sin(index));
const shards = [[floatTensor("a", [64], waves)], [floatTensor("b", [64], waves.map(Math.cos))]];
const tiny = "org/tiny";

beforeAll(async () => {
  server = await startHubServer();
  await using folder = await createTemporaryFolder();
  await writeShardedCheckpoint(folder.path, {}, shards);
  sharded = await readRepository(folder.path);
  sharded.set("tokenizer.json", { bytes: Buffer.from("{}"), isLarge: true });
  sharded.set("chat_template.jinja", textFile("{{ messages }}"));
});

afterAll(() => server.stop());

/** Files of many kinds beside the checkpoint. */
const others = new Map<string, HubFileContent>([
  [".gitattributes", textFile("*.safetensors filter=lfs")],
  ["README.md", textFile("# Tiny")],
  ["pytorch_model.bin", { bytes: Buffer.from("pickle"), isLarge: true }],
  ["consolidated.safetensors", { bytes: Buffer.from("the same weights again"), isLarge: true }],
  ["original/config.json", textFile("{}")],
  ["../escaped.json", textFile("{}")],
]);

const wantedFiles = [
  "chat_template.jinja",
  "config.json",
  "model-00001-of-00002.safetensors",
  "model-00002-of-00002.safetensors",
  "model.safetensors.index.json",
  "tokenizer.json",
];

let content: HubRepositoryContent;

beforeEach(() => {
  content = { files: new Map([...others, ...sharded]) };
  server.repositories.clear();
  server.repositories.set(tiny, content);
  server.requests.length = 0;
  server.tokens.clear();
  server.pageSize = 1000;
  server.disturb = null;
});

interface HubOptions extends Partial<ResolveCheckpointOptions> {
  readonly changes?: Partial<HubConfig>;
}

function resolveIn(cache: string, reference: string = tiny, { changes, ...options }: HubOptions = {}): Promise<string> {
  const hub = hubConfigOf(server, join(cache, "hub"), changes);
  return resolveCheckpoint(reference, { hub, cacheFolder: join(cache, "fovea"), ...options });
}

const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);

/** Paths of the files that were read since the last call, by their last part; storage has hashes. */
function takeReads(): string[] {
  const requests = server.requests
    .splice(0)
    .filter(({ method, path }) => method === "GET" && !path.startsWith("/api/"));
  const nameOf = new Map([...content.files].map(([path, { bytes }]) => [sha256(bytes), path]));
  const names = requests.map(({ path }) => path.split("/").at(-1)!);
  return names.map((name) => nameOf.get(name) ?? name).sort();
}

/** One large file, which several ranges make up. */
async function withLargeWeights(): Promise<Buffer> {
  const words = Uint32Array.from({ length: (3 * RANGE_BYTES) / 4 + 1000 }, (_, index) => Math.imul(index, 2654435761));
  const tensor = { name: "large", dtype: "I32", shape: [words.length], bytes: new Uint8Array(words.buffer) } as const;
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [tensor]);
  content.files = await readRepository(folder.path);
  return content.files.get("model.safetensors")!.bytes;
}

test("only the files of the checkpoint are downloaded, into the layout of huggingface_hub", async () => {
  await using folder = await createTemporaryFolder();
  const progress: [number, number][] = [];
  server.pageSize = 3;
  const path = await resolveIn(folder.path, tiny, {
    onProgress: ({ completed, total }) => progress.push([completed, total]),
  });
  const commit = commitOf(content);
  const repository = join(folder.path, "hub", "models--org--tiny");
  expect(path).toBe(join(repository, "snapshots", commit));
  expect((await readdir(path)).sort()).toEqual(wantedFiles);
  expect(takeReads()).toEqual(wantedFiles);
  expect(await readFile(join(repository, "refs", "main"), "utf8")).toBe(commit);
  const blobs = wantedFiles.map((name) => {
    const { bytes, isLarge } = content.files.get(name)!;
    return isLarge ? sha256(bytes) : gitHash(bytes);
  });
  expect((await readdir(join(repository, "blobs"))).sort()).toEqual([...new Set(blobs)].sort());
  for (const [index, name] of wantedFiles.entries()) {
    expect(await readlink(join(path, name))).toBe(`../../blobs/${blobs[index]}`);
    expect((await readFile(join(path, name))).equals(content.files.get(name)!.bytes)).toBe(true);
  }
  const [completed, total] = progress.at(-1)!;
  expect(completed).toBe(total);
  // So that the start need not read the weights again for their hashes.
  expect(await readdir(join(folder.path, "fovea", "hashes"))).toHaveLength(3);
  expect((await openCheckpoint(path, { cacheFolder: folder.path })).tensors.size).toBe(2);
});

test("a second start reads two lists and no file; a new commit costs only the files that changed", async () => {
  await using folder = await createTemporaryFolder();
  const first = await resolveIn(folder.path);
  server.requests.length = 0;
  expect(await resolveIn(folder.path)).toBe(first);
  expect(server.requests.map(({ path }) => path)).toEqual([
    `/api/models/${tiny}/revision/main`,
    `/api/models/${tiny}/tree/${commitOf(content)}`,
  ]);
  server.requests.length = 0;
  content.files = new Map([...content.files, ["config.json", textFile('{"a":1}')]]);
  const second = await resolveIn(folder.path);
  expect(takeReads()).toEqual(["config.json"]);
  expect(await readFile(join(second, "config.json"), "utf8")).toBe('{"a":1}');
  expect(await readFile(join(first, "config.json"), "utf8")).toBe("{}");
});

test("a commit and a pull request can be named as the revision", async () => {
  await using folder = await createTemporaryFolder();
  const old = commitOf(content);
  await resolveIn(folder.path);
  content.files = new Map([...content.files, ["config.json", textFile('{"a":1}')]]);
  const repository = join(folder.path, "hub", "models--org--tiny");
  expect(await resolveIn(folder.path, `hf://${tiny}@${old}`)).toBe(join(repository, "snapshots", old));
  const ofPullRequest = await resolveIn(folder.path, `${tiny}@refs/pr/1`);
  expect(ofPullRequest).toBe(join(repository, "snapshots", commitOf(content)));
  expect(await readFile(join(repository, "refs/refs/pr/1"), "utf8")).toBe(commitOf(content));
});

test("a file that is missing or was truncated is downloaded again", async () => {
  await using folder = await createTemporaryFolder();
  const path = await resolveIn(folder.path);
  takeReads();
  await rm(join(path, "tokenizer.json"));
  await truncate(join(path, "model-00002-of-00002.safetensors"), 10);
  await rm(resolve(path, await readlink(join(path, "config.json"))));
  await resolveIn(folder.path);
  expect(takeReads()).toEqual(["config.json", "model-00002-of-00002.safetensors"]);
  expect((await openCheckpoint(path, { cacheFolder: folder.path })).tensors.size).toBe(2);
});

test("the token goes to the hub and to no storage", async () => {
  await using folder = await createTemporaryFolder();
  content.isPrivate = true;
  server.tokens.add("hf_secret");
  const tokenFile = join(folder.path, "token");
  await writeFile(tokenFile, "hf_secret\n");
  await resolveIn(folder.path, tiny, { changes: { tokenFile } });
  await rm(join(folder.path, "hub"), { recursive: true });
  await resolveIn(folder.path, tiny, { changes: { token: "hf_secret" } });
  const tokensOf = (name: "hub" | "storage"): unknown[] => [
    ...new Set(
      server.requests.filter((request) => request.server === name).map(({ headers }) => headers.authorization),
    ),
  ];
  expect(tokensOf("hub")).toEqual(["Bearer hf_secret"]);
  expect(tokensOf("storage")).toEqual([undefined]);
});

test.for<[string, Partial<HubRepositoryContent> | null, string, string | null, string]>([
  ["an unknown repository", null, tiny, null, "has no repository org/tiny. A private one needs HF_TOKEN."],
  ["a token without access", null, tiny, "weak", "has no repository org/tiny. The token may not have access to it."],
  [
    "a private repository",
    { isPrivate: true },
    tiny,
    null,
    "has no repository org/tiny. A private one needs HF_TOKEN.",
  ],
  ["a wrong token", {}, tiny, "unknown", "rejects the token: set HF_TOKEN to a valid one."],
  ["a gated repository", { isGated: true }, tiny, null, "org/tiny is gated: accept its conditions at http://"],
  ["a gated repository", { isGated: true }, tiny, "without-access", "; the present token has no access."],
  ["an unknown revision", {}, `hf://${tiny}@v9`, null, "org/tiny has no revision v9."],
])("%s: %o, %s with the token %s", async ([, changes, reference, token, message]) => {
  await using folder = await createTemporaryFolder();
  server.tokens.add("weak").add("without-access");
  if (changes === null) server.repositories.clear();
  else Object.assign(content, changes);
  expect(await errorOf(resolveIn(folder.path, reference, { changes: { token } }))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining(message),
  });
});

test("a renamed repository is found under its old name", async () => {
  await using folder = await createTemporaryFolder();
  server.repositories.set("old/name", { files: new Map(), movedTo: tiny });
  const path = await resolveIn(folder.path, "old/name");
  expect(path).toContain("models--old--name");
  expect((await readdir(path)).sort()).toEqual(wantedFiles);
});

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
    message: expect.stringMatching(/limits the rate .* HF_TOKEN raises the limit. It asks to wait 3600 seconds/),
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
    await expect
      .poll(async () => (await journalOf()).trim().split("\n").slice(1).sort(), { timeout: 20_000 })
      .toEqual(["1", "2", "3"]);
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

test.for(["model-00001-of-00002.safetensors", "config.json"])(
  "other bytes than those of the hash are rejected: %s",
  async (name) => {
    await using folder = await createTemporaryFolder();
    const { bytes, isLarge } = content.files.get(name)!;
    server.disturb = ({ method, path }) =>
      method === "GET" && path.endsWith(isLarge ? sha256(bytes) : `/${name}`)
        ? { bytes: (body) => Buffer.from(body.map((byte) => byte ^ 1)) }
        : undefined;
    expect(await errorOf(resolveIn(folder.path))).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringContaining(`The bytes of ${name} do not have the hash`),
    });
    const snapshot = join(folder.path, "hub/models--org--tiny/snapshots", commitOf(content));
    expect(await readdir(snapshot)).toEqual(["model.safetensors.index.json"]);
    server.disturb = null;
    expect((await readdir(await resolveIn(folder.path))).sort()).toEqual(wantedFiles);
  },
);

interface Listed {
  readonly path: string;
  size: number;
  lfs?: { size: number };
}

const weightsName = "model-00001-of-00002.safetensors";

test.for<[string, number, RegExp]>([
  ["more", 100, /lists model-00001-of-00002.safetensors with \d+ bytes and serves \d+ bytes/],
  ["fewer", -100, /lists model-00001-of-00002.safetensors with \d+ bytes and serves \d+ bytes/],
  ["more than the disk has", 2 ** 50, /needs [\d.]+ MiB more, and the disk of the hub cache has [\d.]+ MiB/],
])("a hub that lists %s bytes than a file has is rejected", async ([, difference, message]) => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) => {
    if (!path.includes("/tree/")) return;
    return {
      json: (body: Listed[]) =>
        body.map((entry) =>
          entry.path === weightsName ? { ...entry, lfs: { ...entry.lfs, size: entry.lfs!.size + difference } } : entry,
        ),
    };
  };
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({ message: expect.stringMatching(message) });
});

test("a small file with another size than listed is rejected", async () => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) =>
    path.includes("/tree/")
      ? { json: (body: Listed[]) => body.map((entry) => ({ ...entry, size: entry.size + 1 })) }
      : undefined;
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringMatching(/^The hub lists [\w.]+ with \d+ bytes and serves \d+ bytes\.$/),
  });
});

test.for<[string, (body: never) => unknown]>([
  ["a commit that is a path", () => ({ sha: "../../../../outside" })],
  ["no commit", () => ({})],
  ["a hash that is a path", (body: object[]) => body.map((entry) => ({ ...entry, oid: "../../outside" }))],
  ["a negative size", (body: object[]) => body.map((entry) => ({ ...entry, size: -1 }))],
])("an answer with %s is rejected", async ([, json]) => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) => (path.includes("/revision/") === json.length < 1 ? { json } : undefined);
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining("does not answer like a hub; check HF_ENDPOINT."),
  });
});

test("without a connection, the cache answers if it has the whole checkpoint", async () => {
  await using folder = await createTemporaryFolder();
  const path = await resolveIn(folder.path);
  server.requests.length = 0;
  expect(await resolveIn(folder.path, tiny, { changes: { isOffline: true } })).toBe(path);
  expect(server.requests).toEqual([]);
  server.disturb = () => ({ status: 503, headers: { "retry-after": "0" } });
  expect(await resolveIn(folder.path)).toBe(path);

  await rm(join(path, "model-00002-of-00002.safetensors"));
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_configuration",
    setting: "hubCacheFolder",
    message: expect.stringMatching(/only in part.* answers with status 503.*shard model-00002-of-00002.safetensors/),
  });
  expect(await errorOf(resolveIn(folder.path, "org/other", { changes: { isOffline: true } }))).toMatchObject({
    code: "invalid_configuration",
    message:
      "There is no folder org/other, so it is a repository of the hub. The hub cache has no revision main of org/other, and it cannot be downloaded: HF_HUB_OFFLINE is set",
  });
});

test("a cache that only others may write is read", async () => {
  await using folder = await createTemporaryFolder();
  // As huggingface_hub writes it, with a newline of an older version in the reference.
  const repository = join(folder.path, "hub", "models--org--tiny");
  const snapshot = join(repository, "snapshots", commitOf(content));
  await mkdir(snapshot, { recursive: true });
  await mkdir(join(repository, "blobs"));
  await mkdir(join(repository, "refs"));
  for (const name of wantedFiles) {
    const { bytes, isLarge } = content.files.get(name)!;
    const blob = join(repository, "blobs", isLarge ? sha256(bytes) : gitHash(bytes));
    await writeFile(blob, bytes);
    await symlink(relative(snapshot, blob), join(snapshot, name));
  }
  await writeFile(join(repository, "refs", "main"), `${commitOf(content)}\n`);
  expect(await resolveIn(folder.path, tiny, { changes: { isOffline: true } })).toBe(snapshot);
  expect(await resolveIn(folder.path)).toBe(snapshot);
  expect(takeReads()).toEqual([]);
  expect(await readdir(join(folder.path, "hub"))).toEqual(["models--org--tiny"]);
});

test("a local folder takes precedence over a repository of the same name", async () => {
  await using folder = await createTemporaryFolder();
  const name = "models/fovea-shapes";
  server.repositories.set(name, content);
  expect(await resolveIn(folder.path, name)).toBe(resolve(name));
  expect(server.requests).toEqual([]);
  expect(await resolveIn(folder.path, `hf://${name}`)).toContain("models--models--fovea-shapes");
});

test("two processes download each file once", async () => {
  await using folder = await createTemporaryFolder();
  const bytes = await withLargeWeights();
  const child = fileURLToPath(new URL("../../../support/resolve-hub-child.ts", import.meta.url));
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
  const child = fileURLToPath(new URL("../../../support/resolve-hub-child.ts", import.meta.url));
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

test("of an ONNX export, the files of one variant are downloaded", async () => {
  await using folder = await createTemporaryFolder();
  const names = ["decoder_model_merged", "embed_tokens", "vision_encoder"].flatMap((part) => [
    `${part}.onnx`,
    `${part}_q4.onnx`,
  ]);
  const parts = [...names, "decoder_model_merged_q4.onnx_data"].map((name): [string, HubFileContent] => [
    `onnx/${name}`,
    { bytes: Buffer.from(name), isLarge: true },
  ]);
  content.files = new Map([["config.json", textFile("{}")], ...parts]);
  const variant = { dtype: "int4", device: "cpu" } as const;
  const path = await resolveIn(folder.path, tiny, { variant });
  const wanted = parts.flatMap(([name]) => (name.includes("_q4") ? [name.slice("onnx/".length)] : []));
  expect((await readdir(join(path, "onnx"))).sort()).toEqual(wanted.sort());
  expect(await readFile(join(path, "onnx", wanted[0]!), "utf8")).toBe(wanted[0]);
  content.files = new Map([["config.json", textFile("{}")]]);
  expect(await errorOf(resolveIn(folder.path, tiny, { variant }))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("lacks model.safetensors and model.safetensors.index.json and an export in onnx/"),
  });
});
