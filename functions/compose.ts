/** The composition root: creates the clients, the engine and the application, and closes them. */
import type { RequestListener } from "node:http";
import type { S3Client } from "@aws-sdk/client-s3";

import {
  createDataUrlImageSource,
  createEngine,
  createHttpsImageSource,
  createS3ImageSource,
} from "../engine/index.ts";
import type { ByteStore, Engine, EngineError, EngineStall, LoadProgress } from "../engine/index.ts";
import { createApp } from "./app.ts";
import type { BatchesDependencies } from "./batch/create-batches.ts";
import { LazyBatches } from "./batch/lazy-batches.ts";
import { loadConfiguredFormats } from "./generation/parsed-output/load-formats.ts";
import { BodyIntake } from "./http/body-intake.ts";
import { createListener } from "./http/listener.ts";
import type { Logger } from "./logger.ts";
import { createMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { Service } from "./service.ts";
import type { Config } from "./settings/config.ts";

export interface CompositionOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** See `EngineDependencies.onFailed`. */
  readonly onFailed?: (error: EngineError) => void;
}

export interface Composition {
  readonly listener: RequestListener;
  readonly service: Service;
  readonly metrics: Metrics;
  /** Its model is still loading; `engine.ready` settles when loading ends. */
  readonly engine: Engine;
  /** Servers call this when the engine is ready: it works on queued batches in the background. */
  startBatches(): void;
  /**
   * Rejects new requests, releases batches for the next start, and waits for requests and lines in progress; after
   * `graceMs` it ends them. Resolves to whether all requests ended by themselves.
   */
  drain(graceMs: number): Promise<boolean>;
  /** Closes the engine and the clients. Drain requests first. */
  close(): Promise<void>;
}

export async function compose(options: CompositionOptions): Promise<Composition> {
  const { logger, onProgress, onFailed } = options;
  const config = { ...options.config, outputFormats: await loadConfiguredFormats(options.config) };
  const { maxNumSequences, maxNumWaiting } = config.engine;
  const service = new Service({ maxNumRequests: maxNumSequences + maxNumWaiting });
  const bodies = new BodyIntake({
    maxBodyBytes: config.maxBodyBytes,
    idleTimeoutMs: config.bodyIdleTimeoutMs,
    drainSignal: service.drainSignal,
  });
  const metrics = createMetrics(service, bodies, config.servedModelNames[0]);
  const connectedSources = [
    createHttpsImageSource(config.images),
    createS3ImageSource({ createClient: async () => (await loadS3ClientFactory(config))() }),
  ];
  const engine = createEngine(config.engine, {
    imageSources: [createDataUrlImageSource(), ...connectedSources],
    ...(isS3(config.engine.model) && { createS3Client: await loadS3ClientFactory(config) }),
    ...(config.redisUrl !== null && { createByteStore: createStoreFactory(config.redisUrl, logger) }),
    ...(onProgress && { onProgress }),
    onStall: (stall) => logStall(stall, logger),
    onFailed: (error) => {
      logger.error("The engine has failed; /livez asks for a restart.", { error });
      onFailed?.(error);
    },
  });
  service.engine = engine;
  const batches = createLazyBatches({ config, service, engine, metrics, logger });
  const app = createApp({ service, bodies, metrics, logger, config, ...(batches && { loadBatches: batches.load }) });
  return {
    listener: createListener(app),
    service,
    metrics,
    engine,
    startBatches: () => void batches?.start(),
    async drain(graceMs) {
      const [isClean] = await Promise.all([service.drain(graceMs), batches?.stop()]);
      return isClean;
    },
    async close() {
      await batches?.close();
      await bodies.close();
      await engine.close();
      await Promise.all(connectedSources.map((source) => source.close()));
    },
  };
}

function logStall(stall: EngineStall | null, logger: Logger): void {
  if (stall === null) return logger.info("The step of the engine has ended; requests are accepted again.");
  const message = stall.isLasting
    ? "The step of the engine still has not ended; its requests are ended, and /livez requests a restart."
    : "A step of the engine does not end; new requests are rejected until it does.";
  logger.error(message, { ...stall });
}

/** Null if batches are off. */
function createLazyBatches(parts: Omit<BatchesDependencies, "createS3Client">): LazyBatches | null {
  const { config } = parts;
  if (config.batches.store.kind === "none") return null;
  const createS3Client = async (): Promise<S3Client> => (await loadS3ClientFactory(config))();
  return new LazyBatches({ ...parts, createS3Client });
}

export function isS3(reference: string): boolean {
  return /^s3:/i.test(reference);
}

/** The client is imported while the model loads, not before the port is open. */
function createStoreFactory(url: string, logger: Logger): () => Promise<ByteStore> {
  return async () => {
    const { createRedisStore } = await import("./redis-store.ts");
    return createRedisStore(url, logger);
  };
}

/** The SDK takes longer to load than everything else, so it is imported only if something is on S3. */
export async function loadS3ClientFactory({ s3 }: Config): Promise<() => S3Client> {
  const { S3Client: Client } = await import("@aws-sdk/client-s3");
  const region = s3.region ?? (s3.endpoint === null ? undefined : "us-east-1");
  return () =>
    new Client({
      ...(s3.endpoint !== null && { endpoint: s3.endpoint, forcePathStyle: true }),
      ...(region !== undefined && { region }),
    });
}
