/** Embeddings return from the store in half precision, and the reference's greedy tokens stay the same. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { defaultCacheConfig } from "../../engine/contract/default-limits.ts";
import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { CacheReport, Engine, GenerationRequest, RequestOutput } from "../../engine/index.ts";
import { createLogger } from "../../functions/logger.ts";
import { createRedisStore } from "../../functions/redis/redis-store.ts";
import { loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import type { GoldenCase, Goldens } from "../support/checkpoints/goldens.ts";
import { smallEngineConfig } from "../support/engine/engine-config.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import type { RedisServer } from "../support/servers/redis-server.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { connected } from "./multimodal/caches/redis-caches.ts";

let redis: RedisServer;
let folder: TemporaryFolder;

beforeAll(async () => {
  redis = await startRedisServer();
  folder = await createTemporaryFolder();
});
afterAll(async () => {
  await redis.kill();
  await folder[Symbol.asyncDispose]();
});

/** Keeps nothing in memory, so that everything about images comes from the store. */
async function startReplica({ name, checkpointFolder }: Goldens): Promise<Engine> {
  const logger = createLogger({ level: "debug", write: () => {} });
  const engine = createEngine(
    {
      ...smallEngineConfig(checkpointFolder, folder.path),
      maxNumWaiting: 64,
      caches: { ...defaultCacheConfig, maxMemoryBytes: 0, commandTimeoutMs: 5_000, keyPrefix: name },
    },
    {
      imageSources: [createDataUrlImageSource()],
      createByteStore: () => connected(createRedisStore(redis.url, logger)),
    },
  );
  await engine.ready;
  return engine;
}

/** For a checkpoint without a chat template that marks pictures like Qwen2-VL's. */
async function textPrompt({ messages, pictures }: GoldenCase): Promise<GenerationRequest["prompt"]> {
  const references = await Promise.all(pictures.map(pictureReference));
  const marks = messages.flatMap(({ content }) =>
    content.map((part) => (part.type === "text" ? part.text : "<|vision_start|><|image_pad|><|vision_end|>")),
  );
  const images = references.map((reference) => ({ type: "image", reference }) as const);
  return { kind: "text", text: marks.join(""), addSpecialTokens: false, images };
}

async function chatPrompt({ messages, pictures }: GoldenCase): Promise<GenerationRequest["prompt"]> {
  const references = await Promise.all(pictures.map(pictureReference));
  const filled = messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? { type: "image" as const, reference: references.shift() as string } : part,
    ),
  }));
  return { kind: "chat", messages: filled, addGenerationPrompt: true };
}

async function answer(engine: Engine, golden: GoldenCase, requestId: string): Promise<number[]> {
  const outputs: RequestOutput[] = [];
  const request = {
    requestId,
    prompt: await (engine.modelInfo!.hasChatTemplate ? chatPrompt : textPrompt)(golden),
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true }),
  } as const;
  for await (const output of engine.generate(request)) outputs.push(output);
  return outputs.flatMap(({ tokenIds }) => tokenIds);
}

function statsOf({ tiers }: CacheReport, cache: string) {
  return tiers.find((tier) => tier.cache === cache)!.stats;
}

test.for(["llava-default", "llava-full", "fovea-shapes", "smolvlm", "qwen2-vl"] as const)(
  "%s: a replica that reads all embeddings from the store answers with the reference's tokens",
  async (model) => {
    const goldens = await loadGoldens(model);
    const cases = goldens.cases.filter(({ pictures }) => pictures.length > 0);
    const numPictures = new Set(cases.flatMap(({ pictures }) => pictures)).size;
    const first = await startReplica(goldens);
    for (const golden of cases) expect(await answer(first, golden, golden.name)).toEqual(golden.greedyTokenIds);
    await expect.poll(() => statsOf(first.caches!, "encoder").writtenBytes, { interval: 10 }).toBeGreaterThan(0);
    await expect
      .poll(() => Number(redis.command("eval", `return #redis.call("keys", "${model}:encoder:*")`, "0")))
      .toBe(numPictures);
    await first.close();

    const second = await startReplica(goldens);
    for (const golden of cases) expect(await answer(second, golden, golden.name)).toEqual(golden.greedyTokenIds);
    const { queries, hits, errors } = statsOf(second.caches!, "encoder");
    expect({ hits, errors }).toEqual({ hits: queries, errors: 0 });
    expect(statsOf(second.caches!, "processor").hits).toBeGreaterThanOrEqual(numPictures);
    expect(statsOf(second.caches!, "pixels").queries).toBe(0);
    await second.close();
  },
);

test("a picture from the store and new ones in one prompt are answered with the reference's tokens", async () => {
  const goldens = { ...(await loadGoldens("llava-default")), name: "some-pictures" };
  const [one, three] = ["one", "three"].map((name) => goldens.cases.find((golden) => golden.name === name)!);
  const first = await startReplica(goldens);
  expect(await answer(first, one!, "one")).toEqual(one!.greedyTokenIds);
  await expect
    .poll(() => Number(redis.command("eval", `return #redis.call("keys", "${goldens.name}:encoder:*")`, "0")))
    .toBe(1);
  await first.close();

  const second = await startReplica(goldens);
  // The step of the first picture has room for the beginning of the second one.
  expect(await answer(second, three!, "three")).toEqual(three!.greedyTokenIds);
  expect(statsOf(second.caches!, "encoder").hits).toBeGreaterThan(0);
  await second.close();
});
