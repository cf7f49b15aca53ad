import { mkdir, readdir, readFile, readlink, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { expect, test } from "vitest";

import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { loraAdapter } from "../../../support/checkpoints/hub-checkpoints.ts";
import { readRepository, textFile } from "../../../support/checkpoints/hub-repository.ts";
import { commitOf, gitHash, sha256 } from "../../../support/servers/hub-server.ts";
import type { HubFileContent } from "../../../support/servers/hub-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import {
  server,
  content,
  tiny,
  wantedFiles,
  resolveIn,
  errorOf,
  takeReads,
  useTinyRepository,
} from "./tiny-repository.ts";

useTinyRepository();

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

test("of an adapter, its two files are downloaded, and served without a connection", async () => {
  await using folder = await createTemporaryFolder();
  const files = await readRepository(loraAdapter("qwen2.5"));
  server.repositories.set("org/adapter", { files: new Map([...files, ["optimizer.bin", textFile("state")]]) });
  const path = await resolveIn(folder.path, "org/adapter", { content: "adapter" });
  const wanted = ["adapter_config.json", "adapter_model.safetensors"];
  expect((await readdir(path)).sort()).toEqual(wanted);
  const offline = { content: "adapter", changes: { isOffline: true } } as const;
  expect(await resolveIn(folder.path, "org/adapter", offline)).toBe(path);

  files.delete("adapter_model.safetensors");
  server.repositories.set("org/adapter", { files });
  expect(await errorOf(resolveIn(folder.path, "org/adapter", { content: "adapter" }))).toMatchObject({
    code: "invalid_checkpoint",
    message: "The LoRA adapter org/adapter lacks adapter_model.safetensors.",
    setting: "loraAdapter",
  });
});

test("of further chat templates, the one for tools is downloaded", async () => {
  await using folder = await createTemporaryFolder();
  const template = textFile("{{ tools }}");
  const further = "additional_chat_templates";
  content.files = new Map([
    ...content.files,
    [`${further}/tool_use.jinja`, template],
    [`${further}/rag.jinja`, textFile("{{ documents }}")],
  ]);
  const path = await resolveIn(folder.path);
  expect(await readFile(join(path, further, "tool_use.jinja"))).toEqual(template.bytes);
  expect(await readdir(join(path, further))).toEqual(["tool_use.jinja"]);
});

test("of the folders of sentence-transformers, the file that says how tokens are pooled is downloaded", async () => {
  await using folder = await createTemporaryFolder();
  content.files = new Map([
    ...content.files,
    ["1_Pooling/config.json", textFile('{"pooling_mode": "lasttoken"}')],
    ["1_Pooling/notes.txt", textFile("")],
    ["2_Dense/model.safetensors", textFile("")],
  ]);
  const path = await resolveIn(folder.path);
  expect(await readdir(join(path, "1_Pooling"))).toEqual(["config.json"]);
  expect(await readdir(path)).not.toContain("2_Dense");
});

test("a second start reads lists and no file; a new commit costs only the files that changed", async () => {
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

test("a renamed repository is found under its old name", async () => {
  await using folder = await createTemporaryFolder();
  server.repositories.set("old/name", { files: new Map(), movedTo: tiny });
  const path = await resolveIn(folder.path, "old/name");
  expect(path).toContain("models--old--name");
  expect((await readdir(path)).sort()).toEqual(wantedFiles);
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
      "There is no folder org/other, so it is a repository of the hub. The hub cache has no revision main of org/other, and it cannot be downloaded: the hub is set to offline.",
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
  content.files = new Map([
    ["config.json", textFile("{}")],
    ["pytorch_model.bin", textFile("")],
  ]);
  expect(await errorOf(resolveIn(folder.path, tiny, { variant }))).toMatchObject({
    message: expect.stringContaining("Its file pytorch_model.bin is not read"),
  });
});
