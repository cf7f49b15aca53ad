/** Redis as the store that replicas share; the only file that knows its client. */
import { Redis, ReplyError } from "ioredis";

import type { ByteStore, ByteStoreEntry } from "../engine/index.ts";
import type { Logger } from "./logger.ts";

const connectTimeoutMs = 5_000;
const maxReconnectPauseMs = 2_000;
/** What a node of a cluster says of keys that others hold, or that lie apart. */
const clusterReply = /^(?:MOVED|ASK|CROSSSLOT|CLUSTERDOWN)\b/;

/**
 * Connects in the background and for as long as it is not closed. A cache is of no use late: calls without a connection
 * fail at once, and those in flight when it breaks fail with it and are not sent again. A picture's keys are asked for
 * in one command, which a cluster does not take: a single server, or a proxy that looks like one, is needed.
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

  let isCluster = false;
  const refused = new Set<"reads" | "writes">();
  /** Whoever called sees a miss, and nobody would know why. */
  async function tellingRefusals<Result>(operation: "reads" | "writes", work: Promise<Result>): Promise<Result> {
    try {
      const result = await work;
      if (refused.delete(operation) && !isCluster) logger.info(`Redis takes ${operation} again`, {});
      return result;
    } catch (error) {
      const isReply = error instanceof Error && error instanceof ReplyError;
      if (isReply && !isReported && !isCluster && !refused.has(operation)) {
        isCluster = clusterReply.test(error.message);
        const reason = isCluster
          ? `It is a node of a cluster, and REDIS_URL must name a single server: ${error.message}`
          : error.message;
        logger.warn(`Redis refuses ${operation}; requests are served without them until it takes them again`, {
          reason,
        });
        refused.add(operation);
      }
      throw error;
    }
  }

  return {
    getMany: (keys) => tellingRefusals("reads", redis.mgetBuffer([...keys])),
    setMany: (entries) => tellingRefusals("writes", write(entries)),
    async close() {
      isClosed = true;
      redis.disconnect();
    },
  };

  async function write(entries: readonly ByteStoreEntry[]): Promise<void> {
    const pipeline = redis.pipeline();
    for (const { key, bytes, timeToLiveSeconds } of entries) {
      pipeline.set(key, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), "EX", timeToLiveSeconds);
    }
    for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
  }
}
