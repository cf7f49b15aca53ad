import { once } from "node:events";
import { mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { createServer, request as forward, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { CreateBucketCommand, DeleteObjectCommand, GetObjectCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { RANGE_BYTES } from "../../../engine/weights/parallel-ranges.ts";
import { resolveCheckpoint, type ResolveCheckpointOptions } from "../../../engine/weights/resolve-checkpoint.ts";
import { floatTensor, writeCheckpoint, writeShardedCheckpoint } from "../../support/checkpoints/safetensors-writer.ts";
import { startS3Server, type S3Server } from "../../support/servers/s3-server.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

let server: S3Server;
let gateway: Gateway;

/** The fate of one request on its way to the server; `cut` breaks the connection in the middle of the answer. */
type Meddle = (request: IncomingMessage) => Promise<"cut" | void> | "cut" | void;

/** A connection between client and server that records the objects fetched and can be disturbed. */
interface Gateway {
  readonly endpoint: string;
  /** `GET key range`, or `LIST`, in the order of arrival. */
  readonly log: string[];
  meddle: Meddle | null;
  close(): Promise<void>;
}

async function startGateway(target: string): Promise<Gateway> {
  const log: string[] = [];
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const isList = request.url?.includes("list-type=2") === true;
    log.push(isList ? "LIST" : `GET ${request.url?.split("?")[0]} ${request.headers.range}`);
    const fate = isList ? undefined : await gateway.meddle?.(request);
    const upstream = forward(new URL(request.url ?? "/", target), { method: request.method, headers: request.headers });
    upstream.end();
    const [answer] = (await once(upstream, "response")) as [IncomingMessage];
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    if (fate !== "cut") return void answer.pipe(response);
    const [chunk] = (await once(answer, "data")) as [Buffer];
    answer.destroy();
    response.write(chunk.subarray(0, chunk.byteLength / 2), () => response.destroy());
  };
  const proxy = createServer((request, response) => void pass(request, response).catch(() => response.destroy()));
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  return {
    endpoint: `http://127.0.0.1:${port}`,
    log,
    meddle: null,
    async close() {
      proxy.closeAllConnections();
      proxy.close();
      await once(proxy, "close");
    },
  };
}

beforeAll(async () => {
  server = await startS3Server();
  gateway = await startGateway(server.endpoint);
});

afterAll(async () => {
  await gateway.close();
  await server.stop();
});

const waves = Float32Array.from({ length: 64 }, (_, index) => Math.sin(index));
const shards = [[floatTensor("a", [64], waves)], [floatTensor("b", [64], waves.map(Math.cos))]];

let numBuckets = 0;

/** Uploads a checkpoint below `models/tiny/` of its own bucket, with other files next to it. */
async function uploadCheckpoint(write: (folder: string) => Promise<void>): Promise<string> {
  await using folder = await createTemporaryFolder();
  await write(folder.path);
  await writeFile(join(folder.path, "tokenizer.json"), "{}");
  await writeFile(join(folder.path, "chat_template.jinja"), "{{ messages }}");
  const Bucket = `checkpoints-${numBuckets++}`;
  await server.client.send(new CreateBucketCommand({ Bucket }));
  const put = (Key: string, Body: Uint8Array | string): Promise<unknown> =>
    server.client.send(new PutObjectCommand({ Bucket, Key, Body }));
  for (const name of await readdir(folder.path))
    await put(`models/tiny/${name}`, await readFile(join(folder.path, name)));
  await put("models/tiny/optimizer.pt", "not needed");
  await put("models/tiny/consolidated.safetensors", "the same weights again");
  await put("models/tiny/original/config.json", "{}");
  await put("models/tiny-2/config.json", "{}");
  await put("models/tiny/../../escaped.json", "{}");
  await put("models/tiny//etc/escaped.json", "{}");
  await put("models/tiny/..\\escaped.json", "{}");
  await put("models/tiny/.complete.json", "{}");
  gateway.log.length = 0;
  gateway.meddle = null;
  return Bucket;
}

const uploadSharded = (): Promise<string> => uploadCheckpoint((folder) => writeShardedCheckpoint(folder, {}, shards));

const shardedFiles = [
  "chat_template.jinja",
  "config.json",
  "model-00001-of-00002.safetensors",
  "model-00002-of-00002.safetensors",
  "model.safetensors.index.json",
  "tokenizer.json",
];

function resolveIn(
  cacheFolder: string,
  reference: string,
  options: Partial<ResolveCheckpointOptions> = {},
): Promise<string> {
  const createS3Client = () => server.createClient({ endpoint: gateway.endpoint });
  return resolveCheckpoint(reference, { cacheFolder, createS3Client, ...options });
}

const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);

/** Number of each kind of request since the last call. */
function takeLog(): { readonly lists: number; readonly objects: readonly string[] } {
  const entries = gateway.log.splice(0);
  const objects = entries
    .filter((entry) => entry !== "LIST")
    .map((entry) => entry.split(" ")[1]!.split("/").at(-1) ?? "");
  return { lists: entries.length - objects.length, objects: objects.sort() };
}

test("only the files of the checkpoint are downloaded, and it opens", async () => {
  await using folder = await createTemporaryFolder();
  const bucket = await uploadSharded();
  const progress: [completed: number, total: number][] = [];
  const path = await resolveIn(folder.path, `s3://${bucket}/models/tiny/`, {
    onProgress: ({ completed, total }) => progress.push([completed, total]),
  });
  expect((await readdir(path)).sort()).toEqual([".complete.json", ...shardedFiles]);
  const checkpoint = await openCheckpoint(path, { cacheFolder: folder.path });
  expect([...checkpoint.tensors.keys()].sort()).toEqual(["a", "b"]);
  const [completed, total] = progress.at(-1) ?? [];
  expect(completed).toBe(total);
  expect(await readdir(folder.path)).toEqual(["checkpoints"]);
});

test("a second start costs one LIST", async () => {
  await using folder = await createTemporaryFolder();
  const reference = `s3://${await uploadSharded()}/models/tiny`;
  const first = await resolveIn(folder.path, reference);
  expect(takeLog()).toEqual({ lists: 1, objects: shardedFiles });
  expect(await resolveIn(folder.path, `${reference}/`)).toBe(first);
  expect(takeLog()).toEqual({ lists: 1, objects: [] });
});

test("a changed object gets a new folder, and the first stays unchanged", async () => {
  await using folder = await createTemporaryFolder();
  const Bucket = await uploadSharded();
  const reference = `s3://${Bucket}/models/tiny`;
  const first = await resolveIn(folder.path, reference);
  await server.client.send(new PutObjectCommand({ Bucket, Key: "models/tiny/config.json", Body: '{"a":1}' }));
  const second = await resolveIn(folder.path, reference);
  expect(await readFile(join(second, "config.json"), "utf8")).toBe('{"a":1}');
  expect(await readFile(join(first, "config.json"), "utf8")).toBe("{}");
});

test("only a missing or truncated file is downloaded again", async () => {
  await using folder = await createTemporaryFolder();
  const reference = `s3://${await uploadSharded()}/models/tiny`;
  const path = await resolveIn(folder.path, reference);
  takeLog();
  await rm(join(path, "tokenizer.json"));
  await truncate(join(path, "model-00002-of-00002.safetensors"), 10);
  await resolveIn(folder.path, reference);
  expect(takeLog().objects).toEqual(["model-00002-of-00002.safetensors", "tokenizer.json"]);
  await openCheckpoint(path, { cacheFolder: folder.path });
});

test("a large object is downloaded in concurrent ranges and assembled correctly", async () => {
  await using folder = await createTemporaryFolder();
  const byteLength = 3 * RANGE_BYTES + 1000 * 4;
  const words = Uint32Array.from({ length: byteLength / 4 }, (_, index) => Math.imul(index, 2654435761));
  const large = { name: "large", dtype: "I32", shape: [words.length], bytes: new Uint8Array(words.buffer) } as const;
  const bucket = await uploadCheckpoint((path) => writeCheckpoint(path, {}, [large]));

  // No range is answered before two are requested, which never happens with sequential downloads.
  const { promise: twoAsked, resolve: passBoth } = Promise.withResolvers<void>();
  let numAsked = 0;
  gateway.meddle = async (request) => {
    if (request.url?.includes("/model.safetensors") !== true) return;
    if (++numAsked === 2) passBoth();
    await twoAsked;
  };
  const path = await resolveIn(folder.path, `s3://${bucket}/models/tiny`);
  expect(numAsked).toBe(4);
  const { tensors } = await openCheckpoint(path, { cacheFolder: folder.path });
  const { file, byteOffset } = tensors.get("large")!;
  expect((await readFile(file)).subarray(byteOffset).equals(large.bytes)).toBe(true);
});

test("of an ONNX export, the files of one variant are downloaded with their weights", async () => {
  await using folder = await createTemporaryFolder();
  const Bucket = await uploadCheckpoint((path) => writeFile(join(path, "config.json"), "{}"));
  const parts = ["embed_tokens", "decoder_model_merged", "vision_encoder"];
  const names = parts.flatMap((part) => [
    `${part}.onnx`,
    `${part}_q4.onnx`,
    `${part}_q4.onnx_data`,
    `${part}_fp16.onnx`,
  ]);
  for (const name of [...names, "decoder_model_merged_q4.onnx_data_1", "readme.md"]) {
    await server.client.send(new PutObjectCommand({ Bucket, Key: `models/tiny/onnx/${name}`, Body: name }));
  }
  const resolveVariant = (dtype: "int4" | "float32" | "int8"): Promise<string> =>
    resolveIn(folder.path, `s3://${Bucket}/models/tiny`, { variant: { dtype, device: "cpu" } });
  const path = await resolveVariant("int4");
  const wanted = names.filter((name) => name.includes("_q4"));
  expect((await readdir(join(path, "onnx"))).sort()).toEqual([...wanted, "decoder_model_merged_q4.onnx_data_1"].sort());
  expect((await openCheckpoint(path, { cacheFolder: folder.path })).onnxFileNames).toHaveLength(wanted.length + 1);
  takeLog();
  expect(await resolveVariant("int4")).toBe(path);
  expect(takeLog()).toEqual({ lists: 2, objects: [] });

  const exact = await resolveVariant("float32");
  expect((await readdir(join(exact, "onnx"))).sort()).toEqual(parts.map((part) => `${part}.onnx`).sort());
  expect(await errorOf(resolveVariant("int8"))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining("There are: decoder_model_merged.onnx (float32), "),
  });
});

test("a broken connection is retried", async () => {
  await using folder = await createTemporaryFolder();
  const bucket = await uploadSharded();
  const cut = new Set<string>();
  gateway.meddle = ({ url = "" }) => {
    if (cut.has(url) || !url.includes(".safetensors?")) return;
    cut.add(url);
    return "cut";
  };
  const path = await resolveIn(folder.path, `s3://${bucket}/models/tiny`);
  expect(cut.size).toBe(2);
  expect((await openCheckpoint(path, { cacheFolder: folder.path })).tensors.size).toBe(2);
});

test("an object that vanishes after the listing is named; the next start resumes", async () => {
  await using folder = await createTemporaryFolder();
  const Bucket = await uploadSharded();
  const Key = "models/tiny/model-00002-of-00002.safetensors";
  const reference = `s3://${Bucket}/models/tiny`;
  const others = shardedFiles.filter((name) => !Key.endsWith(name));
  const vanishing = await getObject(Bucket, Key);
  gateway.meddle = async ({ url = "" }) => {
    if (!url.includes("00002-of-00002")) return;
    await server.client.send(new DeleteObjectCommand({ Bucket, Key }));
    await vi.waitFor(async () => {
      const [name] = await readdir(join(folder.path, "checkpoints"));
      const complete = (await readdir(join(folder.path, "checkpoints", name!))).filter(
        (file) => !file.endsWith(".partial"),
      );
      expect(complete.sort()).toEqual(others);
    }, 20_000);
  };
  expect(await errorOf(resolveIn(folder.path, reference))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining(`s3://${Bucket}/${Key} cannot be read: it does not exist`),
  });
  const [name] = await readdir(join(folder.path, "checkpoints"));
  expect((await readdir(join(folder.path, "checkpoints", name!))).sort()).toEqual(others);

  gateway.meddle = null;
  await server.client.send(new PutObjectCommand({ Bucket, Key, Body: vanishing }));
  takeLog();
  await resolveIn(folder.path, reference);
  expect(takeLog().objects).toEqual(["model-00002-of-00002.safetensors"]);
});

async function getObject(bucket: string, key: string): Promise<Uint8Array> {
  const { Body } = await server.client.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
  return Body!.transformToByteArray();
}

test("an object that changes after the listing is rejected, not mixed", async () => {
  await using folder = await createTemporaryFolder();
  const Bucket = await uploadSharded();
  const Key = "models/tiny/tokenizer.json";
  gateway.meddle = async ({ url = "" }) => {
    if (url.includes("tokenizer.json")) await server.client.send(new PutObjectCommand({ Bucket, Key, Body: "[]" }));
  };
  expect(await errorOf(resolveIn(folder.path, `s3://${Bucket}/models/tiny`))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining(`s3://${Bucket}/${Key} cannot be read: it changed`),
  });
});

test("two concurrent downloads both get the whole checkpoint", async () => {
  await using folder = await createTemporaryFolder();
  const reference = `s3://${await uploadSharded()}/models/tiny`;
  const [first, second] = await Promise.all([resolveIn(folder.path, reference), resolveIn(folder.path, reference)]);
  expect(first).toBe(second);
  expect((await readdir(first)).sort()).toEqual([".complete.json", ...shardedFiles]);
  await openCheckpoint(first, { cacheFolder: folder.path });
});

test("an abort ends the download and leaves no partial file", async () => {
  await using folder = await createTemporaryFolder();
  const bucket = await uploadSharded();
  const controller = new AbortController();
  gateway.meddle = ({ url = "" }) => {
    if (url.includes("tokenizer.json")) controller.abort();
  };
  const { signal } = controller;
  const error = await errorOf(resolveIn(folder.path, `s3://${bucket}/models/tiny`, { signal }));
  expect(error).toMatchObject({ code: "aborted" });
  const files = await readdir(folder.path, { recursive: true });
  expect(files.filter((name) => name.endsWith(".partial") || name.endsWith("tokenizer.json"))).toEqual([]);
});

test("a shard missing in the bucket, and a prefix without a checkpoint, are named", async () => {
  await using folder = await createTemporaryFolder();
  const Bucket = await uploadSharded();
  const Key = "models/tiny/model-00001-of-00002.safetensors";
  await server.client.send(new DeleteObjectCommand({ Bucket, Key }));
  expect(await errorOf(resolveIn(folder.path, `s3://${Bucket}/models/tiny`))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("lacks the shard model-00001-of-00002.safetensors"),
  });
  expect(await errorOf(resolveIn(folder.path, `s3://${Bucket}/models/other`))).toMatchObject({
    code: "invalid_checkpoint",
    message: `The checkpoint s3://${Bucket}/models/other/ lacks config.json.`,
  });
  expect(await errorOf(resolveIn(folder.path, `s3://${Bucket}/models/tiny-2`))).toMatchObject({
    message: expect.stringContaining("lacks model.safetensors and model.safetensors.index.json and an export in onnx/"),
  });
});

test("an absent bucket, missing rights and an unreachable server are configuration errors", async () => {
  await using folder = await createTemporaryFolder();
  expect(await errorOf(resolveIn(folder.path, "s3://no-such-bucket/models/tiny"))).toMatchObject({
    code: "invalid_configuration",
    message: "s3://no-such-bucket/models/tiny/ cannot be listed: it does not exist (NoSuchBucket).",
  });

  const guarded = await startS3Server({ numCallsBeforeAuth: 1 });
  try {
    await guarded.client.send(new CreateBucketCommand({ Bucket: "guarded" }));
    const createS3Client = () => guarded.createClient();
    expect(await errorOf(resolveIn(folder.path, "s3://guarded/models/tiny", { createS3Client }))).toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(
        /^s3:\/\/guarded\/models\/tiny\/ cannot be listed: rejected \(\w+, status 403\)\.$/,
      ),
    });
  } finally {
    await guarded.stop();
  }
  const createS3Client = () => guarded.createClient({ maxAttempts: 1 });
  expect(await errorOf(resolveIn(folder.path, "s3://guarded/models/tiny", { createS3Client }))).toMatchObject({
    code: "invalid_configuration",
    message: "s3://guarded/models/tiny/ cannot be listed (ECONNREFUSED).",
  });
  expect(await errorOf(resolveIn(folder.path, "s3:///models/tiny"))).toMatchObject({ code: "invalid_configuration" });
  const none = resolveCheckpoint("s3://guarded/models/tiny", { cacheFolder: folder.path });
  expect(await errorOf(none)).toMatchObject({ code: "invalid_configuration" });
});

test.for<[string, string, RegExp]>([
  [
    "adapter_model.safetensors",
    "no",
    /lacks config\.json\. Its file adapter_model\.safetensors belongs to a LoRA adapter: load its base model/,
  ],
  ["llava-q4.gguf", "no", /lacks config\.json\. Its file llava-q4\.gguf is not read: use the repository/],
  [
    "pytorch_model-00001-of-00002.bin",
    "config.json",
    /onnx\/\. Its file pytorch_model-00001-of-00002\.bin is not read, because/,
  ],
  ["consolidated.00.pth", "config.json", /onnx\/\. Its file consolidated\.00\.pth is not read, because/],
  ["model.onnx", "config.json", /onnx\/\. Its file model\.onnx is not read: the files of an export are in onnx\//],
  ["genai_config.json", "model.onnx", /lacks config\.json\. Its file genai_config\.json belongs to an export for ONNX/],
  ["training_args.bin", "config.json", /onnx\/\.$/],
])("a folder with only %s and %s is rejected with what to do", async ([name, other, expected]) => {
  await using folder = await createTemporaryFolder();
  await writeFile(join(folder.path, other), "{}");
  await writeFile(join(folder.path, name), "");
  const resolving = resolveCheckpoint(folder.path, { cacheFolder: folder.path });
  expect(await errorOf(resolving)).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringMatching(expected),
  });
});

test("the path of a file is rejected as one", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "model.safetensors");
  await writeFile(file, "");
  expect(await errorOf(resolveCheckpoint(file, { cacheFolder: folder.path }))).toMatchObject({
    code: "invalid_configuration",
    message: `${file} is a file; a checkpoint is a folder.`,
  });
});

test("a local folder is used directly, or rejected with the missing file", async () => {
  await using folder = await createTemporaryFolder();
  const resolveFolder = (path: string): Promise<string> => resolveCheckpoint(path, { cacheFolder: folder.path });
  expect(await errorOf(resolveFolder("./llava-1.5-7b-hf"))).toMatchObject({
    code: "invalid_configuration",
    message: "There is no folder ./llava-1.5-7b-hf.",
  });
  const path = join(folder.path, "model");
  await mkdir(path);
  expect(await errorOf(resolveFolder(path))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("lacks config.json"),
  });
  await writeFile(join(path, "config.json"), "{}");
  expect(await errorOf(resolveFolder(path))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("lacks model.safetensors and model.safetensors.index.json and an export in onnx/"),
  });
  await writeCheckpoint(path, {}, shards.flat());
  expect(await resolveFolder(path)).toBe(path);
});
