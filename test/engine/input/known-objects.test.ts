/**
 * An S3 object that replicas know costs a conditional request, not a download: over a real object store and a real
 * Redis.
 */
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";

import { defaultCacheConfig } from "../../../engine/contract/default-limits.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createS3ImageSource } from "../../../engine/images/s3-image-source.ts";
import { MultiModalCaches } from "../../../engine/multimodal/caches/multimodal-caches.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createRedisStore } from "../../../functions/redis/redis-store.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { connected } from "../multimodal/caches/redis-caches.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { recordStatuses } from "./s3-statuses.ts";

let redis: RedisServer;
let s3: S3Server;

beforeAll(async () => {
  [redis, s3] = await Promise.all([startRedisServer(), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "pictures" }));
});
afterAll(async () => {
  await Promise.all([redis.kill(), s3.stop()]);
});

async function put(picture: string): Promise<void> {
  const body = Buffer.from((await pictureReference(picture)).split(",")[1]!, "base64");
  await s3.client.send(new PutObjectCommand({ Bucket: "pictures", Key: "a.png", Body: body }));
}

interface Replica extends AsyncDisposable {
  readonly caches: MultiModalCaches;
  readonly statuses: readonly number[];
  /** The hash of the current object. */
  mmHash(): Promise<string>;
}

async function startReplica(): Promise<Replica> {
  const store = await connected(createRedisStore(redis.url, createLogger({ level: "error", write: () => {} })));
  const caches = new MultiModalCaches({ ...defaultCacheConfig, commandTimeoutMs: 5_000 }, store);
  const client = s3.createClient();
  const statuses = recordStatuses(client);
  const source = createS3ImageSource({ createClient: () => client });
  const inputs = await createGoldenInputs("llava-default", { caches, sources: [source] });
  const image = { type: "image", reference: "s3://pictures/a.png" } as const;
  const prompt = { kind: "text", text: "<image>", addSpecialTokens: false, images: [image] } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return {
    caches,
    statuses,
    async mmHash() {
      const { images } = await inputs.inputProcessor.process(request, new AbortController().signal);
      await caches.settled();
      return images[0]!.mmHash;
    },
    async [Symbol.asyncDispose]() {
      await inputs[Symbol.asyncDispose]();
      await source.close();
      await caches.close();
    },
  };
}

test("an object that another replica has fetched is revalidated, and downloaded only when it has changed", async () => {
  await using first = await startReplica();
  await using second = await startReplica();
  await put("drawing.png");
  const drawing = await first.mmHash();
  expect(await second.mmHash()).toBe(drawing);
  expect([first.statuses, second.statuses]).toEqual([[200], [304]]);

  await put("photo.png");
  const photo = await second.mmHash();
  expect(photo).not.toBe(drawing);
  expect(await second.mmHash()).toBe(photo);
  // The first replica still remembers the previous version.
  expect(await first.mmHash()).toBe(photo);
  expect([first.statuses, second.statuses]).toEqual([
    [200, 200],
    [304, 200, 304],
  ]);
});

test("without Redis, each replica fetches and processes an object itself", async () => {
  await using first = await startReplica();
  await using second = await startReplica();
  await redis.kill();
  await put("small.png");
  expect(await second.mmHash()).toBe(await first.mmHash());
  expect([first.statuses, second.statuses]).toEqual([[200], [200]]);
});
