/** `fovea batch`: answers the lines of a file, and resumes an earlier run. */
import { totalSequences } from "../../engine/index.ts";
import { prepareLine } from "../batch/answer-line.ts";
import type { AnswerDependencies } from "../batch/answer-line.ts";
import { roomForLines } from "../batch/create-window.ts";
import { runBatch } from "../batch/run-batch.ts";
import type { BatchSummary } from "../batch/run-batch.ts";
import { WorkWindow } from "../batch/work-window.ts";
import { compose } from "../compose.ts";
import type { Composition } from "../compose.ts";
import type { Logger } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { warnOfSettings } from "../start-warnings.ts";
import { openBatchFiles } from "./batch-files.ts";
import type { BatchFiles, OpenedFiles } from "./batch-files.ts";
import { EXIT_FAILED, exitCodeOf, exitCodeOfSignal } from "./exit-codes.ts";
import { exitProcess } from "./exit-process.ts";
import { killItself } from "./kill-itself.ts";
import { logWarnings } from "./log-warnings.ts";
import { describeOutputFailure } from "./output-failure.ts";
import { createProgressDisplay } from "./progress.ts";
import type { ProgressDisplay } from "./progress.ts";
import { describeS3Failure } from "./s3-failure.ts";
import { describeLoadFailure } from "./start-failure.ts";
import { onStopSignal } from "./stop-signals.ts";
import type { StopSignal } from "./stop-signals.ts";

/**
 * Ends the process: with 0 when every line has a result, of whatever kind; with 1 when the model, the engine or a file
 * fails during the run; after a signal with the signal's code. Throws ConfigError for invalid files before anything is
 * loaded.
 */
export async function batch(config: Config, files: BatchFiles, logger: Logger): Promise<never> {
  logWarnings(logger);
  const stopping = new AbortController();
  const opened = await openBatchFiles(files, { config, logger, signal: stopping.signal });
  const signal = stopOnSignals(stopping, logger);
  const progress = createProgressDisplay(process.stderr, logger);
  // Standard output does not tell a later run which lines are answered.
  const advice = `run the command again${files.output === "-" ? "" : " to resume"}.`;
  let composition: Composition | null = null;
  let exitCode = EXIT_FAILED;
  try {
    composition = await compose({ config, logger, onProgress: progress.show });
    const summary = await run(config, composition, { opened, stopping, logger, progress });
    if (summary?.isComplete === true) await opened.finish();
    progress.stop();
    if (summary !== null) logger.info(summary.isComplete ? "Done." : `Stopped; ${advice}`, { ...summary });
    if (summary?.isComplete === true) exitCode = 0;
    else if (signal.name !== null) exitCode = exitCodeOfSignal[signal.name];
  } catch (error) {
    progress.stop();
    const failure =
      describeLoadFailure(error, config) ?? describeS3Failure(error, config) ?? describeOutputFailure(error);
    logger.error(`The batch ended early; ${advice}`, { ...(failure ?? { error }) });
    exitCode = exitCodeOf(error);
  }
  await opened.close();
  await composition?.close().catch((error: unknown) => {
    logger.error("The engine could not be closed.", { error });
    killItself();
  });
  return exitProcess(exitCode);
}

interface BatchRun {
  readonly opened: OpenedFiles;
  readonly stopping: AbortController;
  readonly logger: Logger;
  readonly progress: ProgressDisplay;
}

/** Null if it was stopped before the model was loaded. */
async function run(
  config: Config,
  { engine, service, metrics }: Composition,
  { opened, stopping, logger, progress }: BatchRun,
): Promise<BatchSummary | null> {
  const stopped = Promise.withResolvers<void>();
  stopping.signal.addEventListener("abort", () => stopped.resolve(), { once: true });
  await Promise.race([engine.ready, stopped.promise]);
  if (stopping.signal.aborted) return null;
  warnOfSettings(engine, config, logger);
  void stopped.promise.then(() => service.drain(config.shutdownGraceMs));

  const maxNumSequences = totalSequences(config.engine);
  const dependencies: AnswerDependencies = { service, engine, metrics, logger, config, tenant: "" };
  const { readInput, results, numLines } = opened;
  return runBatch({
    lines: readInput(stopping.signal, progress.show),
    done: results.done,
    results,
    prepare: (line) => prepareLine(line, dependencies),
    // Twice the number of sequences, so that the next ones are prepared while the others are computed.
    window: new WorkWindow(maxNumSequences + Math.min(maxNumSequences, config.engine.maxNumWaiting), {
      maxLineBytes: roomForLines(),
    }),
    stopping,
    logger,
    onProgress(completed) {
      if (numLines !== null) progress.show({ task: "lines", completed, total: numLines, unit: "lines" });
    },
  });
}

/** The first signal lets lines in progress finish within the grace of the settings; a second one ends the process. */
function stopOnSignals(stopping: AbortController, logger: Logger): { readonly name: StopSignal | null } {
  const received: { name: StopSignal | null } = { name: null };
  onStopSignal((signal, { hasParentEnded }) => {
    received.name = signal;
    logger.info("Stopping.", hasParentEnded ? { because: "npm has ended" } : { signal });
    stopping.abort();
  });
  return received;
}
