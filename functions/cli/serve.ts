/** The service from its first socket to its last: start, signals, drain, end. */
import type { Config } from "../settings/config.ts";
import type { Composition } from "../compose.ts";
import type { Logger } from "../logger.ts";
import { openServer } from "../http/server.ts";
import type { OpenServer } from "../http/server.ts";
import { exitCodeOf } from "./exit-codes.ts";
import { killItself } from "./kill-itself.ts";
import { describeLoadFailure } from "./load-failure.ts";
import { onStopSignal } from "./stop-signals.ts";

/** Of sockets whose other end went away: they say nothing about the state of this process. */
const connectionErrorCodes = new Set(["ECONNRESET", "EPIPE", "ERR_STREAM_PREMATURE_CLOSE", "ERR_STREAM_DESTROYED"]);

/** Resolves when the service is ready, after which it lives until a signal. Ends the process when it cannot start. */
export async function serve(config: Config, logger: Logger): Promise<void> {
  reportStrayErrors(logger);
  let server: OpenServer | null = null;
  let composition: Composition | null = null;
  drainOnSignals(logger, async () => {
    const isClean = (await composition?.drain(config.shutdownGraceMs)) ?? true;
    await server?.close();
    await composition?.close();
    return isClean;
  });

  // The modules behind these imports take several times as long to load as it takes to open the port.
  const composing = Promise.withResolvers<Composition>();
  composing.promise.catch(() => {});
  try {
    server = await openServer(
      config,
      composing.promise.then(({ listener }) => listener),
    );
  } catch (error) {
    return die(logger, `Cannot listen on ${config.host} port ${config.port}.`, error);
  }
  logger.info("Listening.", { host: config.host, port: server.port, afterMs: Math.round(performance.now()) });

  const [{ compose }, { createProgressDisplay }, { warnOfRefusedDefaults }, { warnOfFewerSequences }] =
    await Promise.all([
      import("../compose.ts"),
      import("./progress.ts"),
      import("../default-arguments.ts"),
      import("../fewer-sequences.ts"),
    ]);
  const progress = createProgressDisplay(process.stderr, logger);
  try {
    composition = await compose({ config, logger, onProgress: progress.show });
    composing.resolve(composition);
    await composition.engine.ready;
  } catch (error) {
    composition?.service.fail();
    if (composition?.service.state === "draining") return;
    logger.error(`Cannot serve the model ${config.engine.model}.`, {
      ...(describeLoadFailure(error, config) ?? { error }),
    });
    process.exit(exitCodeOf(error));
  } finally {
    progress.stop();
  }
  warnOfRefusedDefaults(composition.engine, config, logger);
  warnOfFewerSequences(composition.engine, config, logger);
  composition.startBatches();
  logger.info("Ready.", {
    models: config.servedModelNames,
    ...composition.engine.modelInfo,
    afterMs: Math.round(performance.now()),
  });
}

function drainOnSignals(logger: Logger, drain: () => Promise<boolean>): void {
  onStopSignal((signal, { hasParentEnded }) => {
    logger.info("Draining.", hasParentEnded ? { because: "npm has ended" } : { signal });
    void endAfter(drain, logger);
  });
}

async function endAfter(drain: () => Promise<boolean>, logger: Logger): Promise<void> {
  try {
    const isClean = await drain();
    logger.info("Ended.", { isClean });
    process.exit(isClean ? 0 : 1);
  } catch (error) {
    logger.error("The drain failed.", { error });
    killItself();
  }
}

function reportStrayErrors(logger: Logger): void {
  // Whoever read the log has gone; the service goes on.
  process.stdout.on("error", () => {});
  process.on("unhandledRejection", (error) => logger.error("A promise was rejected with nobody waiting.", { error }));
  process.on("uncaughtException", (error: NodeJS.ErrnoException) => {
    if (connectionErrorCodes.has(error.code ?? "")) return logger.warn("A connection broke.", { error });
    die(logger, "Uncaught error: the state of the process is unknown.", error);
  });
}

function die(logger: Logger, message: string, error: unknown): void {
  logger.error(message, { error });
  process.exit(exitCodeOf(error));
}
