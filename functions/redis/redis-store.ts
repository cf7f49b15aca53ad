/** Redis as the replicas' shared store. Only this file imports its client. */
import { Redis, ReplyError } from "ioredis";

import type { ByteStore, ByteStoreEntry } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import { leaveReplica, MAX_SILENCE_MS } from "./redis-failover.ts";
import { RedisLog } from "./redis-log.ts";

const CONNECT_TIMEOUT_MS = 5_000;
const MAX_RECONNECT_PAUSE_MS = 2_000;

export interface RedisStoreOptions {
  /** A connection whose server rejects writes as a replica is replaced at this age. Default 15 s. */
  readonly minConnectionAgeMs?: number;
  /** A connection that owes an answer for so long is replaced. Default `MAX_SILENCE_MS`. */
  readonly maxSilenceMs?: number;
}

/**
 * Connects and reconnects in the background until it is closed. A late cache is useless, so calls without a connection
 * fail at once, and calls in progress when it breaks fail without a retry. A picture's keys are read in one command,
 * which a cluster rejects: use a single server, or a proxy that looks like one.
 *
 * @param url `redis://` or, over TLS, `rediss://`, with user, password and database.
 */
export function createRedisStore(
  url: string,
  logger: Logger,
  { minConnectionAgeMs, maxSilenceMs = MAX_SILENCE_MS }: RedisStoreOptions = {},
): ByteStore {
  let isLeaving = false;
  const redis = new Redis(url, {
    enableOfflineQueue: false,
    // It would call INFO, which needs more permissions. A server that is loading its data says so in every reply.
    enableReadyCheck: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: maxSilenceMs,
    retryStrategy: (attempt) => Math.min(50 * 2 ** attempt, MAX_RECONNECT_PAUSE_MS),
    reconnectOnError: leaveReplica(() => (isLeaving = true), minConnectionAgeMs),
    connectionName: "fovea",
  });
  let isClosed = false;
  const log = new RedisLog(logger);
  const disconnected = (reason: string): void => {
    if (!isClosed) log.disconnected(reason);
  };
  redis.on("error", (error) => disconnected(error.message));
  redis.on("close", () => {
    // The log has the reason already: rejected writes.
    if (!isLeaving) disconnected("The connection was closed.");
    isLeaving = false;
  });
  redis.on("ready", () => log.connected());

  /** Callers see only a miss, so the reason is logged here. */
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
    getMany: (keys) => logged("reads", read(keys)),
    setMany: (entries) => logged("writes", write(entries)),
    onGivenUp: (timeoutMs) => log.givenUp(timeoutMs),
    disconnect() {
      isClosed = true;
      redis.disconnect();
    },
    async connect() {
      if (!isClosed) return;
      isClosed = false;
      // A failure is logged by the listeners, and tried again by the client.
      await redis.connect().catch(() => {});
    },
    async close() {
      isClosed = true;
      redis.disconnect();
    },
  };

  /** Proxies and other servers that speak the protocol may answer with anything. */
  async function read(keys: readonly string[]): Promise<readonly (Uint8Array | null)[]> {
    const values: unknown = await redis.mgetBuffer([...keys]);
    const isAnswer =
      Array.isArray(values) &&
      values.length === keys.length &&
      values.every((value) => value === null || Buffer.isBuffer(value));
    if (isAnswer) return values as readonly (Uint8Array | null)[];
    const reason = `It does not answer MGET of ${keys.length} keys with as many texts.`;
    log.refused("reads", reason);
    throw new Error(reason);
  }

  async function write(entries: readonly ByteStoreEntry[]): Promise<void> {
    const pipeline = redis.pipeline();
    for (const { key, bytes, timeToLiveSeconds } of entries) {
      pipeline.set(key, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), "EX", timeToLiveSeconds);
    }
    for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
  }
}
