/** `fovea batch`: answers the lines of a file, and resumes an earlier run. */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { addAbortSignal } from "node:stream";

import { prepareLine } from "../batch/answer-line.ts";
import type { AnswerDependencies } from "../batch/answer-line.ts";
import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import { readLines } from "../batch/numbered-lines.ts";
import { createResultStream, openResultFile } from "../batch/result-file.ts";
import type { ResultFile } from "../batch/result-file.ts";
import { runBatch } from "../batch/run-batch.ts";
import type { BatchSummary } from "../batch/run-batch.ts";
import { WorkWindow } from "../batch/work-window.ts";
import { compose } from "../compose.ts";
import type { Composition } from "../compose.ts";
import { warnOfRefusedDefaults } from "../default-arguments.ts";
import { warnOfFewerSequences } from "../fewer-sequences.ts";
import type { Logger } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { ConfigError } from "../settings/setting.ts";
import { EXIT_FAILED, exitCodeOf, exitCodeOfSignal } from "./exit-codes.ts";
import { killItself } from "./kill-itself.ts";
import { describeLoadFailure } from "./load-failure.ts";
import { createProgressDisplay } from "./progress.ts";
import type { ProgressDisplay } from "./progress.ts";
import { onStopSignal } from "./stop-signals.ts";
import type { StopSignal } from "./stop-signals.ts";

export interface BatchFiles {
  /** Path, or `-` for standard input. */
  readonly input: string;
  /** Path of a results file to resume, or `-` for standard output. */
  readonly output: string;
}

/**
 * Ends the process: with 0 when every line has a result, of whatever kind; with 1 when the model, the engine or a file
 * fails during the run; after a signal with the signal's code. Throws ConfigError for invalid files before anything is
 * loaded.
 */
export async function batch(config: Config, files: BatchFiles, logger: Logger): Promise<never> {
  const numLines = await countLines(files, config);
  const results = files.output === "-" ? createResultStream(process.stdout) : await openResultFile(files.output);
  const stopping = new AbortController();
  const signal = stopOnSignals(stopping, logger);
  const progress = createProgressDisplay(process.stderr, logger);
  let composition: Composition | null = null;
  let exitCode = EXIT_FAILED;
  try {
    composition = await compose({ config, logger, onProgress: progress.show });
    const summary = await run(config, composition, { files, results, stopping, logger, progress, numLines });
    progress.stop();
    if (summary !== null)
      logger.info(summary.isComplete ? "Done." : "Stopped; run the command again to resume.", { ...summary });
    if (summary?.isComplete === true) exitCode = 0;
    else if (signal.name !== null) exitCode = exitCodeOfSignal[signal.name];
  } catch (error) {
    progress.stop();
    const failure = describeLoadFailure(error, config);
    logger.error("The batch ended early; run the command again to resume.", { ...(failure ?? { error }) });
    exitCode = exitCodeOf(error);
  }
  await results.close();
  await composition?.close().catch((error: unknown) => {
    logger.error("The engine could not be closed.", { error });
    killItself();
  });
  process.exit(exitCode);
}

interface BatchRun {
  readonly files: BatchFiles;
  readonly results: ResultFile;
  readonly stopping: AbortController;
  readonly logger: Logger;
  readonly progress: ProgressDisplay;
  /** Null if it is unknown until all lines have been read. */
  readonly numLines: number | null;
}

/** Null if it was stopped before the model was loaded. */
async function run(
  config: Config,
  { engine, service, metrics }: Composition,
  { files, results, stopping, logger, progress, numLines }: BatchRun,
): Promise<BatchSummary | null> {
  const stopped = Promise.withResolvers<void>();
  stopping.signal.addEventListener("abort", () => stopped.resolve(), { once: true });
  await Promise.race([engine.ready, stopped.promise]);
  if (stopping.signal.aborted) return null;
  warnOfRefusedDefaults(engine, config, logger);
  warnOfFewerSequences(engine, config, logger);
  void stopped.promise.then(() => service.drain(config.shutdownGraceMs));

  const { maxNumSequences, maxNumWaiting } = config.engine;
  const dependencies: AnswerDependencies = { service, engine, metrics, logger, config, tenant: "" };
  return runBatch({
    lines: readInput(files.input, config, stopping.signal),
    done: results.done,
    results,
    prepare: (line) => prepareLine(line, dependencies),
    // Twice the number of sequences, so that the next ones are prepared while the others are computed.
    window: new WorkWindow(maxNumSequences + Math.min(maxNumSequences, maxNumWaiting)),
    stopping,
    onProgress(completed) {
      if (numLines !== null) progress.show({ task: "lines", completed, total: numLines, unit: "lines" });
    },
  });
}

function readInput(input: string, { maxBodyBytes }: Config, signal: AbortSignal) {
  const stream = input === "-" ? process.stdin : createReadStream(input);
  return readLines(addAbortSignal(signal, stream), maxBodyBytes + LINE_ROOM_BYTES);
}

/** Null for standard input. Throws ConfigError for an input that cannot be read, or that is also the output. */
async function countLines({ input, output }: BatchFiles, config: Config): Promise<number | null> {
  if (input === "-") return null;
  try {
    const [ofInput, ofOutput] = await Promise.all([stat(input), stat(output).catch(() => null)]);
    if (ofInput.dev === ofOutput?.dev && ofInput.ino === ofOutput.ino) {
      throw new ConfigError([`--input and --output are the same file, ${input}.`]);
    }
    let numLines = 0;
    if (!ofInput.isFile()) return null;
    for await (const _ of readInput(input, config, new AbortController().signal)) numLines += 1;
    return numLines;
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError([
      `--input ${input} cannot be read: ${error instanceof Error ? error.message : String(error)}.`,
    ]);
  }
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
