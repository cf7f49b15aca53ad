/** The composition root: creates the clients, the engine and the application, and closes them. */
import type { RequestListener } from "node:http";
import type { S3Client } from "@aws-sdk/client-s3";

import {
  createDataUrlImageSource,
  createEngine,
  createHttpsImageSource,
  createS3ImageSource,
  totalSequences,
} from "../engine/index.ts";
import type { ByteStore, Engine, EngineError, EngineStall, LoadProgress } from "../engine/index.ts";
import { createApp, createListener } from "./app.ts";
import { BackgroundWork } from "./background-work.ts";
import { createWindow } from "./batch/create-window.ts";
import { createUploadedFileSource } from "./batch/uploaded-file-source.ts";
import type { WorkWindow } from "./batch/work-window.ts";
import { loadConfiguredFormats } from "./generation/parsed-output/load-formats.ts";
import { BodyIntake } from "./http/body-intake.ts";
import { connectionShares } from "./http/open-files.ts";
import { createPushes, createRunpodJobs } from "./jobs/create-pushes.ts";
import { readJobSource, requireRegion } from "./jobs/sources/job-sources.ts";
import type { OpenJobSource } from "./jobs/sources/job-sources.ts";
import type { Logger } from "./logger.ts";
import { createMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { Service } from "./service.ts";
import type { Config } from "./settings/config.ts";
import { Snapshots } from "./snapshots.ts";
import { StartTimes } from "./start-times.ts";
import type { Telemetry } from "./telemetry/telemetry.ts";

export interface CompositionOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** False serves the state of the process only, for workers. Default true. */
  readonly servesRequests?: boolean;
  /** Receives the engine's times, and is shown in /metrics. */
  readonly startTimes?: StartTimes;
  /** Closes connections of callers that have no request in progress. */
  readonly closeIdleConnections?: () => void;
  /** See `EngineDependencies.onFailed`. */
  readonly onFailed?: (error: EngineError) => void;
}

export interface Composition {
  readonly listener: RequestListener;
  /** Answers what shows the state of the process, and nothing else. */
  readonly stateListener: RequestListener;
  readonly service: Service;
  readonly metrics: Metrics;
  /** Its model is still loading; `engine.ready` settles when loading ends. */
  readonly engine: Engine;
  /** Servers call this when the engine is ready: it works on queued batches and on jobs in the background. */
  startBackgroundWork(): void;
  /**
   * Rejects new requests, releases batches for the next start, and waits for requests and lines in progress; after
   * `graceMs` it ends them. Resolves to whether all requests ended by themselves.
   */
  drain(graceMs: number): Promise<boolean>;
  /** Closes the engine and the clients. Drain requests first. */
  close(): Promise<void>;
}

/** @throws ConfigError for a JOB_SOURCE that cannot be opened, and for parsers that cannot be loaded. */
export async function compose(options: CompositionOptions): Promise<Composition> {
  const { logger, servesRequests = true, startTimes = new StartTimes(), onProgress, onFailed } = options;
  const config = { ...options.config, outputFormats: await loadConfiguredFormats(options.config) };
  const openSource = config.jobs.source === null ? null : await openerOf(config.jobs.source, config);
  const maxNumRequests = totalSequences(config.engine) + config.engine.maxNumWaiting;
  const service = new Service({ maxNumRequests, holdMs: config.coldStartHoldMs });
  const bodies = new BodyIntake({
    maxBodyBytes: config.maxBodyBytes,
    idleTimeoutMs: config.bodyIdleTimeoutMs,
    drainSignal: service.drainSignal,
  });
  const metrics = createMetrics(service, bodies, config.servedModelNames[0]!, startTimes);
  const telemetry = await loadTelemetry(config, metrics, logger);
  const connectedSources = [
    createHttpsImageSource({ ...config.images, maxNumConnections: connectionShares().maxNumPictureHosts }),
    createS3ImageSource({ createClient: async () => (await loadS3ClientFactory(config))() }),
  ];
  const engine = createEngine(config.engine, {
    imageSources: [
      createDataUrlImageSource(),
      ...connectedSources,
      createUploadedFileSource(() => background.loadBatches),
    ],
    ...(loadsFromS3(config.engine) && { createS3Client: await loadS3ClientFactory(config) }),
    ...(config.redisUrl !== null && { createByteStore: createStoreFactory(config.redisUrl, logger) }),
    ...(onProgress && { onProgress }),
    onPhase: (phase, seconds) => startTimes.recordOfEngine(phase, seconds),
    onDevice: (device) => logger.info("Found the GPU.", { ...device }),
    onStall: (stall) => logStall(stall, logger),
    onFailed: (error) => {
      logger.error("The engine has failed; /livez asks for a restart.", { error });
      onFailed?.(error);
    },
  });
  service.engine = engine;
  let sharedWindow: WorkWindow | null = null;
  const window = (): WorkWindow => (sharedWindow ??= createWindow(config, service, engine));
  const clients = new Set<S3Client>();
  const createS3Client = async (): Promise<S3Client> => {
    const client = (await loadS3ClientFactory(config))();
    clients.add(client);
    return client;
  };
  const disconnectClients = async (): Promise<void> => {
    for (const client of clients) client.destroy();
    clients.clear();
    await Promise.all(connectedSources.map((source) => source.disconnect()));
  };
  const dependencies = {
    config,
    service,
    engine,
    metrics,
    logger,
    window,
    createS3Client,
    ...(telemetry && { telemetry }),
  };
  const pushes = servesRequests ? createPushes(config) : null;
  const background = new BackgroundWork({
    dependencies,
    hasBatches: config.batches.store.kind !== "none" && servesRequests,
    openSource,
    pushes,
  });
  const snapshots = new Snapshots({
    service,
    engine,
    background,
    telemetry,
    disconnectClients,
    closeIdleConnections: options.closeIdleConnections ?? (() => {}),
    graceMs: config.shutdownGraceMs,
    logger,
  });
  const { loadBatches } = background;
  const common = { service, bodies, metrics, logger, config };
  const app = createApp({
    ...common,
    servesRequests,
    ...(telemetry && { telemetry }),
    ...(loadBatches && { loadBatches }),
    ...(config.adminKeys.length > 0 && { admin: { keys: config.adminKeys, snapshots } }),
    ...(pushes?.events && { events: pushes.events }),
    ...(pushes && config.jobs.hasRunpodLocalApi && { runpodJobs: createRunpodJobs(pushes.source, config, service) }),
  });
  return {
    listener: createListener(app),
    stateListener: createListener(createApp({ ...common, servesRequests: false })),
    service,
    metrics,
    engine,
    startBackgroundWork: () => background.start(),
    async drain(graceMs) {
      const [isClean] = await Promise.all([service.drain(graceMs), background.stop(graceMs)]);
      return isClean;
    },
    async close() {
      await background.close();
      await bodies.close();
      await engine.close();
      await disconnectClients();
      await telemetry?.close();
    },
  };
}

/** Null if the settings name no collector; then nothing of OpenTelemetry's SDK is loaded. */
async function loadTelemetry({ telemetry }: Config, metrics: Metrics, logger: Logger): Promise<Telemetry | null> {
  if (telemetry === null) return null;
  const { createOpenTelemetry } = await import("./telemetry/open-telemetry.ts");
  return createOpenTelemetry(telemetry, metrics, logger);
}

function logStall(stall: EngineStall | null, logger: Logger): void {
  if (stall === null) return logger.info("The step of the engine has ended; requests are accepted again.");
  const message = stall.isLasting
    ? "The step of the engine still has not ended; its requests are ended, and /livez requests a restart."
    : "A step of the engine does not end; new requests are rejected until it does.";
  logger.error(message, { ...stall });
}

async function openerOf(address: string, { jobs, s3 }: Config): Promise<OpenJobSource> {
  const open = readJobSource(address, jobs.runpod);
  await requireRegion(address, s3.region);
  return open;
}

export function loadsFromS3({
  model,
  loraAdapter,
  loraModules,
}: Pick<Config["engine"], "model" | "loraAdapter" | "loraModules">): boolean {
  return [model, loraAdapter ?? "", ...loraModules.map(({ path }) => path)].some((reference) =>
    /^s3:/i.test(reference),
  );
}

/** The client is imported while the model loads, not before the port is open. */
function createStoreFactory(url: string, logger: Logger): () => Promise<ByteStore> {
  return async () => {
    const { createRedisStore } = await import("./redis/redis-store.ts");
    return createRedisStore(url, logger);
  };
}

/** The SDK takes longer to load than everything else, so it is imported only if something is on S3. */
export async function loadS3ClientFactory({ s3 }: Config): Promise<() => S3Client> {
  const { S3Client: Client } = await import("@aws-sdk/client-s3");
  const region = s3.region ?? (s3.endpoint === null ? undefined : "us-east-1");
  return () => {
    const client = new Client({
      ...(s3.endpoint !== null && { endpoint: s3.endpoint, forcePathStyle: true }),
      ...(region !== undefined && { region }),
    });
    client.middlewareStack.add((next) => async (call) => next(call).catch(nameRegionSetting), { step: "initialize" });
    return client;
  };
}

/** The SDK's error does not say where it looks for the region. */
function nameRegionSetting(error: unknown): never {
  if (!(error instanceof Error && error.message === "Region is missing")) throw error;
  throw new Error("Region is missing: AWS_REGION is not set", { cause: error });
}
