/** Creates the batches' components as the settings say. Imported after the port is open. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";

import type { Engine } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import type { FolderLock } from "../storage/folder-lock.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import { modelTag } from "./batch-records.ts";
import { Batches } from "./batches.ts";
import type { JobQueue } from "./job-queue.ts";
import type { ResultLogs } from "./result-log.ts";
import type { WorkWindow } from "./work-window.ts";

/** They share the sequences for batches, so that a small batch does not wait for all of a large one. */
const MAX_RUNNING_BATCHES = 4;
/**
 * Delay before a failed batch is retried. It doubles with each failure, so that a batch that cannot succeed costs
 * little.
 */
const retryOptions = { firstMs: 5_000, mostMs: 60_000 };
/** With results on S3, answers of this last interval before a kill are computed again. */
const S3_FLUSH_MS = 5_000;
/** Results that S3 rejects stay in memory and are retried for about three minutes, or longer if it does not answer. */
const s3RetryOptions = { retryMs: { first: 500, most: 10_000 }, maxNumAttempts: 20 };
/** A call that transfers part of a file, up to 8 MiB, has this many times the time of a small call. */
const BODY_PATIENCE = 4;
/** No client waits for background work, so its calls have this many times the time of those of requests. */
const BACKGROUND_PATIENCE = 6;

export interface BatchesDependencies {
  readonly config: Config;
  readonly service: Service;
  readonly engine: Engine;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** Called when the engine is ready. */
  readonly window: () => WorkWindow;
  readonly createS3Client: () => Promise<S3Client>;
}

interface Storage {
  readonly store: ObjectStore;
  readonly backgroundStore: ObjectStore;
  readonly logs: ResultLogs;
  /** Equal for all servers that see the same objects. */
  readonly tag: string;
  /** Whether this process may work on the jobs, where no queue decides that. Null if another process does. */
  readonly tryLock: () => Promise<FolderLock | null>;
  readonly tickMs: number;
  readonly lookMs: number;
  /** See BatchesOptions. */
  readonly removeLeftovers?: () => Promise<void>;
}

export async function createBatches(dependencies: BatchesDependencies): Promise<Batches> {
  const { config, service, engine, metrics, logger } = dependencies;
  const { store, backgroundStore, logs, tag, tryLock, tickMs, ...looks } = await openStorage(dependencies);
  const queue = await createQueue(dependencies, tag, tryLock);
  return new Batches({
    store,
    backgroundStore,
    queue,
    runner: {
      logs,
      window: dependencies.window,
      answer: { service, engine, metrics, logger, config },
      maxNumLines: config.batches.maxNumLines,
      maxBodyBytes: config.maxBodyBytes,
      tickMs,
      now: Date.now,
    },
    model: config.servedModelNames[0]!,
    limits: config.batches,
    ...looks,
    cancelMs: config.batches.storeTimeoutMs,
    logger,
  });
}

/** With Redis, all servers of the same model and store share it; otherwise it belongs to this process. */
async function createQueue(
  { config, logger }: BatchesDependencies,
  storeTag: string,
  tryLock: Storage["tryLock"],
): Promise<JobQueue> {
  const options = { maxNumRunning: MAX_RUNNING_BATCHES, retry: retryOptions, logger };
  if (config.redisUrl === null) {
    if (config.batches.store.kind === "s3") {
      logger.info("Batches on S3 without REDIS_URL support only one server of each model at a time.");
    }
    const { createLocalJobQueue } = await import("./local-job-queue.ts");
    return createLocalJobQueue({ ...options, tryLock });
  }
  const { createRedisJobQueue } = await import("./redis-job-queue.ts");
  const name = `batches-${storeTag}-${modelTag(config.servedModelNames[0]!)}`;
  return createRedisJobQueue({ ...options, url: config.redisUrl, keyPrefix: config.batches.queueKeyPrefix, name });
}

async function openStorage({ config, logger, createS3Client }: BatchesDependencies): Promise<Storage> {
  const location = config.batches.store;
  switch (location.kind) {
    case "none":
      throw new Error("Batches were requested although BATCH_STORE is none.");
    case "folder": {
      const { folder } = location;
      const [
        { createFolderObjectStore, removeLeftovers },
        { createFolderResultLogs },
        { tryLockFolder },
        { folderId },
      ] = await Promise.all([
        import("../storage/folder-object-store.ts"),
        import("./folder-result-logs.ts"),
        import("../storage/folder-lock.ts"),
        import("../storage/folder-id.ts"),
      ]);
      const tidy = (): Promise<void> => removeLeftovers(folder, Date.now());
      void tidy();
      const store = createFolderObjectStore(folder);
      return {
        store,
        backgroundStore: store,
        logs: createFolderResultLogs(join(folder, "results"), logger),
        tag: config.redisUrl === null ? "" : await folderId(folder),
        tryLock: async () => tryLockFolder(folder, modelTag(config.servedModelNames[0]!)),
        tickMs: 1000,
        lookMs: 2000,
        removeLeftovers: tidy,
      };
    }
    case "s3": {
      const { bucket, prefix } = location;
      const [{ createS3ObjectStore }, { createSegmentedResultLogs }] = await Promise.all([
        import("../storage/s3-object-store.ts"),
        import("./segmented-result-logs.ts"),
      ]);
      const client = await createS3Client();
      const { storeTimeoutMs } = config.batches;
      const open = (callMs: number): ObjectStore =>
        createS3ObjectStore({ client, bucket, prefix, timeouts: { callMs, bodyMs: BODY_PATIENCE * callMs } });
      const backgroundStore = open(BACKGROUND_PATIENCE * storeTimeoutMs);
      const url = `${config.s3.endpoint ?? ""}/${bucket}/${prefix}`;
      return {
        store: open(storeTimeoutMs),
        backgroundStore,
        logs: createSegmentedResultLogs({ store: backgroundStore, flushMs: S3_FLUSH_MS, ...s3RetryOptions, logger }),
        tag: createHash("sha256").update(url).digest("hex").slice(0, 12),
        // A bucket has no locks: without Redis, it supports one server per model.
        tryLock: async () => ({ release() {} }),
        tickMs: 5000,
        lookMs: 15_000,
      };
    }
  }
}
