/** A hub with one small repository in shards, and its downloads. */
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach } from "vitest";

import type { HubConfig } from "../../../../engine/contract/config.ts";
import { RANGE_BYTES } from "../../../../engine/weights/parallel-ranges.ts";
import { resolveCheckpoint } from "../../../../engine/weights/resolve-checkpoint.ts";
import type { ResolveCheckpointOptions } from "../../../../engine/weights/resolve-checkpoint.ts";
import { hubConfigOf, readRepository, textFile } from "../../../support/checkpoints/hub-repository.ts";
import {
  floatTensor,
  writeCheckpoint,
  writeShardedCheckpoint,
} from "../../../support/checkpoints/safetensors-writer.ts";
import { sha256, startHubServer } from "../../../support/servers/hub-server.ts";
import type { HubFileContent, HubRepositoryContent, HubServer } from "../../../support/servers/hub-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

export let server: HubServer;
let sharded: Map<string, HubFileContent>;

const waves = Float32Array.from({ length: 64 }, (_, index) => Math.sin(index));
const shards = [[floatTensor("a", [64], waves)], [floatTensor("b", [64], waves.map(Math.cos))]];
export const tiny = "org/tiny";

/** Files of many kinds beside the checkpoint. */
const others = new Map<string, HubFileContent>([
  [".gitattributes", textFile("*.safetensors filter=lfs")],
  ["README.md", textFile("# Tiny")],
  ["pytorch_model.bin", { bytes: Buffer.from("pickle"), isLarge: true }],
  ["consolidated.safetensors", { bytes: Buffer.from("the same weights again"), isLarge: true }],
  ["original/config.json", textFile("{}")],
  ["../escaped.json", textFile("{}")],
]);

export const wantedFiles = [
  "chat_template.jinja",
  "config.json",
  "model-00001-of-00002.safetensors",
  "model-00002-of-00002.safetensors",
  "model.safetensors.index.json",
  "tokenizer.json",
];

export let content: HubRepositoryContent;

/** Call it once per test file: the hub runs for its tests, each of which begins with the same repository. */
export function useTinyRepository(): void {
  beforeAll(async () => {
    server = await startHubServer();
    await using folder = await createTemporaryFolder();
    await writeShardedCheckpoint(folder.path, {}, shards);
    sharded = await readRepository(folder.path);
    sharded.set("tokenizer.json", { bytes: Buffer.from("{}"), isLarge: true });
    sharded.set("chat_template.jinja", textFile("{{ messages }}"));
  });

  afterAll(() => server.stop());

  beforeEach(() => {
    content = { files: new Map([...others, ...sharded]) };
    server.repositories.clear();
    server.repositories.set(tiny, content);
    server.requests.length = 0;
    server.tokens.clear();
    server.pageSize = 1000;
    server.disturb = null;
  });
}

export interface HubOptions extends Partial<ResolveCheckpointOptions> {
  readonly changes?: Partial<HubConfig>;
}

export function resolveIn(
  cache: string,
  reference: string = tiny,
  { changes, ...options }: HubOptions = {},
): Promise<string> {
  const hub = hubConfigOf(server, join(cache, "hub"), changes);
  return resolveCheckpoint(reference, { hub, cacheFolder: join(cache, "fovea"), ...options });
}

export const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);

/** Paths of the files that were read since the last call, by their last part; storage has hashes. */
export function takeReads(): string[] {
  const requests = server.requests
    .splice(0)
    .filter(({ method, path }) => method === "GET" && !path.startsWith("/api/"));
  const nameOf = new Map([...content.files].map(([path, { bytes }]) => [sha256(bytes), path]));
  const names = requests.map(({ path }) => path.split("/").at(-1)!);
  return names.map((name) => nameOf.get(name) ?? name).sort();
}

/** One large file, which several ranges make up. */
export async function withLargeWeights(): Promise<Buffer> {
  const words = Uint32Array.from({ length: (3 * RANGE_BYTES) / 4 + 1000 }, (_, index) => Math.imul(index, 2654435761));
  const tensor = { name: "large", dtype: "I32", shape: [words.length], bytes: new Uint8Array(words.buffer) } as const;
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [tensor]);
  content.files = await readRepository(folder.path);
  return content.files.get("model.safetensors")!.bytes;
}
