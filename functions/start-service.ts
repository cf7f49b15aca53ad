/** Runs the service from opening its socket to its end, for the command line and for embedding programs. */
import type { Engine, EngineError, LoadProgress } from "../engine/index.ts";
import type { Composition } from "./compose.ts";
import { connectionShares } from "./http/open-files.ts";
import { openServer } from "./http/server.ts";
import type { OpenServer } from "./http/server.ts";
import type { Logger } from "./logger.ts";
import type { Config } from "./settings/config.ts";
import { StartTimes } from "./start-times.ts";

export interface StartedService {
  readonly port: number;
  /** Resolves when requests are served. Rejects with the error of loading, or with `closed` after `stop`. */
  readonly ready: Promise<Engine>;
  /** Resolves if the engine fails after it was ready. */
  readonly failed: Promise<EngineError>;
  /**
   * Rejects new requests, waits for those in progress within the grace of the settings, and frees everything. Resolves
   * to whether all requests ended by themselves. Idempotent.
   */
  readonly stop: () => Promise<boolean>;
}

export interface StartOptions {
  readonly config: Config;
  readonly logger: Logger;
  /** False serves the state of the process only, for workers. Default true. */
  readonly servesRequests?: boolean;
  /**
   * Whether nothing else runs in this process. An idle service then collects all of its garbage. Default false.
   */
  readonly ownsProcess?: boolean;
  /** Called when the port is open, so that its imports do not delay that. */
  readonly loadProgressDisplay?: () => Promise<{
    readonly show: (progress: LoadProgress) => void;
    readonly stop: () => void;
  }>;
}

/** Resolves when the port is open, before the model is loaded. Rejects if the address is not available. */
export async function startService({
  config,
  logger,
  servesRequests = true,
  ownsProcess = false,
  loadProgressDisplay,
}: StartOptions): Promise<StartedService> {
  const composing = Promise.withResolvers<Composition>();
  composing.promise.catch(() => {});
  const server = await openServer(
    config,
    composing.promise.then(({ listener }) => listener),
    { maxNumConnections: connectionShares().maxNumClients, onFull: warnOfFullServer(logger) },
  );
  const startTimes = new StartTimes();
  startTimes.recordListening();
  logger.info("Listening.", { host: config.host, port: server.port, afterMs: Math.round(performance.now()) });
  const healthServer = await openHealthServer(config, composing.promise, server);

  const failed = Promise.withResolvers<EngineError>();
  const load = async (): Promise<Engine> => {
    // These modules take several times longer to load than it takes to open the port.
    const [{ compose }, { releaseMemoryWhenIdle }, { warnOfSettings }, progress] = await Promise.all([
      import("./compose.ts"),
      import("./idle-memory.ts"),
      import("./start-warnings.ts"),
      loadProgressDisplay?.(),
    ]);
    try {
      const composition = await compose({
        config,
        logger,
        servesRequests,
        startTimes,
        closeIdleConnections: () => {
          server.closeIdleConnections();
          healthServer?.closeIdleConnections();
        },
        onFailed: failed.resolve,
        ...(progress && { onProgress: progress.show }),
      });
      composing.resolve(composition);
      // Imported while the model loads.
      if (servesRequests && config.engine.warmUp) {
        const { warmUpSchemas } = await import("./generation/warm-up-schemas.ts");
        warmUpSchemas();
      }
      await composition.engine.ready.catch((error: unknown) => {
        composition.service.fail();
        throw error;
      });
      startTimes.recordReady();
      warnOfSettings(composition.engine, config, logger);
      composition.startBackgroundWork();
      if (ownsProcess) releaseMemoryWhenIdle(composition.service);
      // Without the template, which would be most of the line.
      const { chatTemplate: _, ...modelInfo } = composition.engine.modelInfo ?? {};
      logger.info("Ready.", {
        models: config.servedModelNames,
        ...modelInfo,
        kvCache: composition.engine.stats.kvCapacity,
        afterMs: Math.round(performance.now()),
        phasesMs: startTimes.toLogField(),
      });
      return composition.engine;
    } finally {
      progress?.stop();
    }
  };
  const ready = load();
  ready.catch(composing.reject);

  const stop = async (): Promise<boolean> => {
    const composition = await composing.promise.catch(() => null);
    const isClean = (await composition?.drain(config.shutdownGraceMs)) ?? true;
    await Promise.all([server.close(), healthServer?.close()]);
    await composition?.close();
    return isClean;
  };
  let stopped: Promise<boolean> | null = null;
  return { port: server.port, ready, failed: failed.promise, stop: () => (stopped ??= stop()) };
}

/** At most once a minute. */
const FULL_WARNING_MS = 60_000;

function warnOfFullServer(logger: Logger): () => void {
  let warnedAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (now - warnedAt < FULL_WARNING_MS) return;
    warnedAt = now;
    const { maxNumClients } = connectionShares();
    logger.warn("Connections are closed: there are as many as the limit on open files allows (ulimit -n).", {
      maxNumConnections: maxNumClients,
    });
  };
}

/** Few clients ask for the health; their connections are beside those of requests. */
const MAX_NUM_HEALTH_CONNECTIONS = 32;

/** Null if the port of requests answers health checks too. Closes that port if it cannot open its own. */
async function openHealthServer(
  { host, healthPort }: Config,
  composing: Promise<Composition>,
  server: OpenServer,
): Promise<OpenServer | null> {
  if (healthPort === null) return null;
  try {
    return await openServer(
      { host, port: healthPort },
      composing.then(({ stateListener }) => stateListener),
      { maxNumConnections: MAX_NUM_HEALTH_CONNECTIONS },
    );
  } catch (error) {
    await server.close();
    throw error;
  }
}
