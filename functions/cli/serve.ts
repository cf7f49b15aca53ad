/** `fovea serve`: the service as a process, with signals and exit codes. */
import type { Logger } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { startService } from "../start-service.ts";
import type { StartedService } from "../start-service.ts";
import { exitCodeOf } from "./exit-codes.ts";
import { exitProcess } from "./exit-process.ts";
import { killItself } from "./kill-itself.ts";
import { logWarnings } from "./log-warnings.ts";
import { describeListenFailure, describeLoadFailure } from "./start-failure.ts";
import { onStopSignal } from "./stop-signals.ts";

/** Errors of sockets whose other end has disconnected; they say nothing about this process. */
const connectionErrorCodes = new Set(["ECONNRESET", "EPIPE", "ERR_STREAM_PREMATURE_CLOSE", "ERR_STREAM_DESTROYED"]);

export interface ServeOptions {
  /** False for `fovea worker`, which only takes jobs. */
  readonly servesRequests: boolean;
}

/** Resolves when the service is ready; it then runs until a signal. Ends the process if it cannot start. */
export async function serve(config: Config, logger: Logger, { servesRequests }: ServeOptions): Promise<void> {
  reportStrayErrors(logger);
  logWarnings(logger);
  const starting = startService({
    config,
    logger,
    servesRequests,
    ownsProcess: true,
    loadProgressDisplay: async () => (await import("./progress.ts")).createProgressDisplay(process.stderr, logger),
  });
  const drain = drainOnSignals(logger, async () => (await starting).stop());
  let service: StartedService;
  try {
    service = await starting;
  } catch (error) {
    const { port, failure } = describeListenFailure(error, config);
    logger.error(`Cannot listen on ${config.host} port ${port}.`, { ...(failure ?? { error }) });
    return exitProcess(exitCodeOf(error));
  }
  try {
    await service.ready;
  } catch (error) {
    if (drain.hasBegun) return;
    logger.error(`Cannot serve the model ${config.engine.model}.`, {
      ...(describeLoadFailure(error, config) ?? { error }),
    });
    exitProcess(exitCodeOf(error));
  }
  void endWhenEngineIsLost(service, logger, { servesRequests });
}

/**
 * The platform starts another process, on another GPU if it has to. Its requests have ended with an error by then. A
 * server whose engine has failed otherwise asks for a restart at /livez. A worker ends then too, because not every
 * platform asks it.
 */
async function endWhenEngineIsLost(
  service: StartedService,
  logger: Logger,
  { servesRequests }: ServeOptions,
): Promise<void> {
  const { code } = await service.failed;
  const isDeviceLost = code === "device_lost";
  if (!isDeviceLost && servesRequests) return;
  logger.error(isDeviceLost ? "The GPU is lost, and the process ends." : "The engine has failed, and the worker ends.");
  await endAfter(async () => {
    await service.stop();
    return false;
  }, logger);
}

function drainOnSignals(logger: Logger, drain: () => Promise<boolean>): { readonly hasBegun: boolean } {
  const state = { hasBegun: false };
  onStopSignal((signal, { hasParentEnded }) => {
    state.hasBegun = true;
    logger.info("Draining.", hasParentEnded ? { because: "npm has ended" } : { signal });
    void endAfter(drain, logger);
  });
  return state;
}

async function endAfter(drain: () => Promise<boolean>, logger: Logger): Promise<void> {
  try {
    const isClean = await drain();
    logger.info("Ended.", { isClean });
    exitProcess(isClean ? 0 : 1);
  } catch (error) {
    logger.error("The drain failed.", { error });
    killItself();
  }
}

function reportStrayErrors(logger: Logger): void {
  // The reader of the log has gone; the service continues.
  process.stdout.on("error", () => {});
  process.on("unhandledRejection", (error) => logger.error("A promise was rejected without a handler.", { error }));
  process.on("uncaughtException", (error: NodeJS.ErrnoException) => {
    if (connectionErrorCodes.has(error.code ?? "")) return logger.warn("A connection broke.", { error });
    die(logger, "Uncaught error: the state of the process is unknown.", error);
  });
}

function die(logger: Logger, message: string, error: unknown): never {
  logger.error(message, { error });
  exitProcess(exitCodeOf(error));
}
