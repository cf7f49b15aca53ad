/** Settings of the image caches, in memory and in Redis. */
import { defaultCacheConfig } from "../../engine/contract/default-limits.ts";
import { setting } from "./setting.ts";
import { anyText, bytes, gibibytes, GIBIBYTE, integer, MEBIBYTE, redisUrl } from "./values.ts";

const ONE_YEAR_SECONDS = 365 * 86_400;

export const cacheSettings = {
  maxMemoryBytes: setting(
    "MM_PROCESSOR_CACHE_GB",
    gibibytes(0, 1024),
    "GiB of this process's memory for image caches: sources, processed images and embeddings; 0 keeps nothing.",
    { default: defaultCacheConfig.maxMemoryBytes / GIBIBYTE },
  ),
  commandTimeoutMs: setting(
    "REDIS_COMMAND_TIMEOUT_MS",
    integer(1, 60_000, "milliseconds"),
    "Redis timeout per request in milliseconds. After one timeout, requests skip Redis until it recovers.",
    { default: defaultCacheConfig.commandTimeoutMs },
  ),
  keyPrefix: setting(
    "REDIS_KEY_PREFIX",
    anyText(),
    "Prefix of every Redis key. Deployments with different prefixes do not share entries.",
    { default: defaultCacheConfig.keyPrefix },
  ),
  timeToLiveSeconds: setting(
    "PROCESSOR_CACHE_TTL_SECONDS",
    integer(1, ONE_YEAR_SECONDS, "seconds"),
    "How long Redis keeps an entry of the image caches.",
    { default: defaultCacheConfig.timeToLiveSeconds },
  ),
  maxValueBytes: setting(
    "PROCESSOR_CACHE_MAX_ITEM_BYTES",
    bytes(1024, 512 * MEBIBYTE),
    "Largest value in bytes that is written to Redis. Larger ones stay in memory.",
    { default: `${defaultCacheConfig.maxValueBytes / MEBIBYTE}MiB` },
  ),
};

/** Null if replicas share nothing. */
export const redisUrlSetting = setting(
  "REDIS_URL",
  redisUrl(),
  "redis:// or rediss:// URL of a server over which replicas share image caches and batches; default: none.",
  { secret: true },
);
