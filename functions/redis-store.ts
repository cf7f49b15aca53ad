/** Redis as the store that replicas share; the only file that knows its client. */
import { Redis } from "ioredis";

import type { ByteStore } from "../engine/index.ts";
import type { Logger } from "./logger.ts";

const connectTimeoutMs = 5_000;
const maxReconnectPauseMs = 2_000;

/**
 * Connects in the background and for as long as it is not closed. A cache is of no use late: calls without a connection
 * fail at once, and those in flight when it breaks fail with it and are not sent again.
 *
 * @param url `redis://` or, over TLS, `rediss://`, with user, password and database as the URL has them.
 */
export function createRedisStore(url: string, logger: Logger): ByteStore {
  const redis = new Redis(url, {
    enableOfflineQueue: false,
    // It would ask for INFO, which users of few rights may not; a server that loads its data says so to every command.
    enableReadyCheck: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: connectTimeoutMs,
    retryStrategy: (attempt) => Math.min(50 * 2 ** attempt, maxReconnectPauseMs),
    connectionName: "fovea",
  });
  let isClosed = false;
  let isReported = false;
  const report = (reason: string): void => {
    if (isReported || isClosed) return;
    isReported = true;
    logger.warn("Redis cannot be used; requests are served without it until it is back", { reason });
  };
  redis.on("error", (error) => report(error.message));
  redis.on("close", () => report("The connection was closed."));
  redis.on("ready", () => {
    if (isReported) logger.info("Redis is connected again", {});
    isReported = false;
  });

  return {
    getMany: (keys) => redis.mgetBuffer([...keys]),
    async setMany(entries) {
      const pipeline = redis.pipeline();
      for (const { key, bytes, timeToLiveSeconds } of entries) {
        pipeline.set(key, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), "EX", timeToLiveSeconds);
      }
      for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
    },
    async close() {
      isClosed = true;
      redis.disconnect();
    },
  };
}
