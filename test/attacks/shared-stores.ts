/** A service behind API keys whose batches are on S3 and whose queue and caches are in Redis, both real servers. */
import { CreateBucketCommand } from "@aws-sdk/client-s3";

import { startRedisServer } from "../support/redis-server.ts";
import { startS3Server } from "../support/s3-server.ts";
import type { Surroundings } from "./attack.ts";
import { createSecret, openSurroundings } from "./surroundings.ts";

export interface SharedStores extends Surroundings {
  /** Of the one who attacks; sent with every request that says nothing else. */
  readonly ownKey: string;
  /** Of somebody else. */
  readonly otherKey: string;
}

export async function prepareSharedStores(environment: Readonly<Record<string, string>> = {}): Promise<SharedStores> {
  const ownKey = createSecret("key");
  const otherKey = createSecret("key");
  const password = createSecret("password");
  const [redis, s3] = await Promise.all([startRedisServer({ settings: ["--requirepass", password] }), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "attacks" }));
  const open = await openSurroundings({
    API_KEY: `${ownKey},${otherKey}`,
    REDIS_URL: redis.url.replace("redis://", `redis://default:${password}@`),
    BATCH_STORE: "s3://attacks/batches",
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    ...environment,
  });
  return {
    ...open,
    ownKey,
    otherKey,
    headers: { authorization: `Bearer ${ownKey}` },
    secrets: [...open.secrets, ownKey, otherKey, password, redis.url, s3.endpoint],
    async [Symbol.asyncDispose]() {
      await Promise.all([redis.kill(), s3.stop(), open[Symbol.asyncDispose]()]);
    },
  };
}
