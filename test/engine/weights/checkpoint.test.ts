import { appendFile, cp, mkdir, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";

import { parseConfigObject, width } from "../../../engine/models/config-field.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { floatTensor, writeCheckpoint, writeShardedCheckpoint } from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const config = { architectures: ["LlamaForCausalLM"], hidden_size: 4 };
const shards = [[floatTensor("a", [2], [1, 2])], [floatTensor("b", [2], [3, 4]), floatTensor("c", [1], [5])]];

test("one file and shards contain the same tensors", async () => {
  await using single = await createTemporaryFolder();
  await using sharded = await createTemporaryFolder();
  await writeCheckpoint(single.path, config, shards.flat());
  await writeShardedCheckpoint(sharded.path, config, shards);
  for (const { path } of [single, sharded]) {
    const checkpoint = await openCheckpoint(path, { cacheFolder: path });
    expect(checkpoint.config).toEqual(config);
    expect([...checkpoint.tensors.keys()].sort()).toEqual(["a", "b", "c"]);
    const { file, byteOffset, byteLength } = checkpoint.tensors.get("b")!;
    const bytes = (await readFile(file)).subarray(byteOffset, byteOffset + byteLength);
    expect(bytes.readFloatLE(4)).toBe(4);
  }
});

test("all tensors of the shards are found, whatever the index says of them", async () => {
  await using folder = await createTemporaryFolder();
  const [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
  const doubled = [...shards[1]!, floatTensor("a", [2], [0, 0])];
  await writeShardedCheckpoint(folder.path, config, [shards[0]!, doubled]);
  // `a` is in both shards, `b` is in the other one, `c` is not listed, and `d` is in neither.
  const index = { weight_map: { a: first, b: first, d: first, e: second } };
  await writeFile(join(folder.path, "model.safetensors.index.json"), JSON.stringify(index));
  const { tensors } = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const places = new Map([...tensors].map(([name, { file }]) => [name, basename(file)]));
  expect(Object.fromEntries(places)).toEqual({ a: first, b: second, c: second });
});

test("a missing shard and a shard outside the folder are named", async () => {
  await using folder = await createTemporaryFolder();
  const open = (): Promise<unknown> => openCheckpoint(folder.path, { cacheFolder: folder.path });
  await writeShardedCheckpoint(folder.path, config, shards);
  const indexFile = join(folder.path, "model.safetensors.index.json");
  const index = JSON.parse(await readFile(indexFile, "utf8")) as { weight_map: Record<string, string> };

  const writeIndex = (weightMap: Record<string, unknown>): Promise<void> =>
    writeFile(indexFile, JSON.stringify({ weight_map: { ...index.weight_map, ...weightMap } }));
  await writeIndex({ d: "../model-00001-of-00002.safetensors" });
  await expect(open()).rejects.toThrow("names no safetensors file for tensor d");
  await writeIndex({ d: 4 });
  await expect(open()).rejects.toThrow("names no safetensors file for tensor d");
  await writeFile(indexFile, "{}");
  await expect(open()).rejects.toThrow("has no weight_map");

  await writeIndex({});
  await rm(join(folder.path, "model-00002-of-00002.safetensors"));
  const error = await open().catch((reason: unknown) => reason);
  expect(error).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("The shard model-00002-of-00002.safetensors"),
  });
});

test("a folder that is not a checkpoint is rejected with the missing file", async () => {
  await using folder = await createTemporaryFolder();
  const open = (): Promise<unknown> => openCheckpoint(folder.path, { cacheFolder: folder.path });
  await expect(open()).rejects.toThrow("has no config.json");
  await writeFile(join(folder.path, "config.json"), "{");
  await expect(open()).rejects.toThrow("config.json is not JSON");
  await writeFile(join(folder.path, "config.json"), "{}");
  await expect(open()).rejects.toThrow("neither model.safetensors nor model.safetensors.index.json");
});

test("floats that are no numbers do not prevent a start unless they are read", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, config, shards.flat());
  await writeFile(join(folder.path, "config.json"), '{"hidden_size": NaN, "range": [0.0, Infinity]}');
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  expect(checkpoint.config).toEqual({ hidden_size: NaN, range: [0, Infinity] });
  expect(() => parseConfigObject(z.object({ hidden_size: width }), checkpoint.config, "")).toThrow(
    "config.json: hidden_size is NaN; expected a number.",
  );
});

test("other JSON files are read if they exist", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, config, shards.flat());
  await writeFile(join(folder.path, "generation_config.json"), '{"eos_token_id":2}');
  await writeFile(join(folder.path, "broken.json"), "no");
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  expect(await checkpoint.readJson("generation_config.json")).toEqual({ eos_token_id: 2 });
  expect(await checkpoint.readJson("preprocessor_config.json")).toBeNull();
  await expect(checkpoint.readJson("broken.json")).rejects.toMatchObject({ code: "invalid_checkpoint" });
});

test("the content hash depends on the content, not on place or times", async () => {
  await using folder = await createTemporaryFolder();
  const [original, copy, cacheFolder] = ["original", "copy", "cache"].map((name) => join(folder.path, name)) as [
    string,
    string,
    string,
  ];
  const hashOf = async (path: string): Promise<string> => (await openCheckpoint(path, { cacheFolder })).contentHash();
  await cp(await writeIn(folder.path), original, { recursive: true });
  await cp(original, copy, { recursive: true });
  const first = await hashOf(original);
  expect(first).toMatch(/^[0-9a-f]{64}$/);
  expect(await hashOf(copy)).toBe(first);
  expect(await hashOf(original)).toBe(first);

  // One weight altered, with size and modification time kept.
  const file = join(copy, "model.safetensors");
  const { atime, mtime } = await stat(file);
  const bytes = await readFile(file);
  bytes.writeUInt8(bytes.readUInt8(bytes.byteLength - 1) ^ 1, bytes.byteLength - 1);
  await writeFile(file, bytes);
  await utimes(file, atime, mtime);
  const altered = await hashOf(copy);
  expect(altered).not.toBe(first);

  await appendFile(join(original, "config.json"), "\n");
  expect(await hashOf(original)).not.toBe(first);
});

test("a stored hash is reused, and a damaged one is computed again", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeIn(folder.path);
  const cacheFolder = join(folder.path, "cache");
  const hashOf = async (): Promise<string> => (await openCheckpoint(path, { cacheFolder })).contentHash();
  const first = await hashOf();
  const [memoName] = await readdir(join(cacheFolder, "hashes"));
  const memoFile = join(cacheFolder, "hashes", memoName!);
  const memo = await readFile(memoFile, "utf8");

  await writeFile(memoFile, memo.replace(/^[0-9a-f]{64}/, "0".repeat(64)));
  expect(await hashOf()).not.toBe(first);
  await writeFile(memoFile, memo.slice(0, 30));
  expect(await hashOf()).toBe(first);
  expect(await readFile(memoFile, "utf8")).toBe(memo);
});

async function writeIn(folder: string): Promise<string> {
  const path = join(folder, "checkpoint");
  await mkdir(path);
  await writeCheckpoint(path, config, shards.flat());
  return path;
}

test("a hash that cannot be stored, as in a read-only cache folder, is computed each time", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, config, shards.flat());
  const cacheFolder = join(folder.path, "cache");
  const expected = await (await openCheckpoint(folder.path, { cacheFolder })).contentHash();
  const unwritable = join(folder.path, "config.json");
  expect(await (await openCheckpoint(folder.path, { cacheFolder: unwritable })).contentHash()).toBe(expected);
});
