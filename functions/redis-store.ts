/** Redis as the store that replicas share; the only file that knows its client. */
import { Redis, ReplyError } from "ioredis";

import type { ByteStore, ByteStoreEntry } from "../engine/index.ts";
import type { Logger } from "./logger.ts";
import { RedisLog } from "./redis-log.ts";

const CONNECT_TIMEOUT_MS = 5_000;
const MAX_RECONNECT_PAUSE_MS = 2_000;

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
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: (attempt) => Math.min(50 * 2 ** attempt, MAX_RECONNECT_PAUSE_MS),
    connectionName: "fovea",
  });
  let isClosed = false;
  const log = new RedisLog(logger);
  const disconnected = (reason: string): void => {
    if (!isClosed) log.disconnected(reason);
  };
  redis.on("error", (error) => disconnected(error.message));
  redis.on("close", () => disconnected("The connection was closed."));
  redis.on("ready", () => log.connected());

  /** Whoever called sees a miss, and nobody would know why. */
  async function logged<Result>(operation: "reads" | "writes", work: Promise<Result>): Promise<Result> {
    const { numGivenUp } = log;
    try {
      const result = await work;
      log.answered(operation, numGivenUp);
      return result;
    } catch (error) {
      if (error instanceof Error && error instanceof ReplyError) log.refused(operation, error.message);
      throw error;
    }
  }

  return {
    getMany: (keys) => logged("reads", redis.mgetBuffer([...keys])),
    setMany: (entries) => logged("writes", write(entries)),
    onGivenUp: (timeoutMs) => log.givenUp(timeoutMs),
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
