/** `fovea check`: describes the model, the memory that it takes, and whether it fits. Starts no server. */
import { EngineError, inspectGpu, inspectModel } from "../../engine/index.ts";
import type { GpuInspection, ModelInspection } from "../../engine/index.ts";
import { loadsFromS3, loadS3ClientFactory } from "../compose.ts";
import { loadConfiguredFormats } from "../generation/parsed-output/load-formats.ts";
import { createLogger, writeTo } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { fitOf, formatReport, toJsonReport } from "./check-report.ts";
import type { CheckReport } from "./check-report.ts";
import { EXIT_FAILED, EXIT_USAGE, exitCodeOf } from "./exit-codes.ts";
import { exitProcess } from "./exit-process.ts";
import { createProgressDisplay } from "./progress.ts";
import type { Progress, ProgressDisplay } from "./progress.ts";
import { describeLoadFailure } from "./start-failure.ts";
import { stopSignals } from "./stop-signals.ts";
import type { StopSignal } from "./stop-signals.ts";
import type { DescribedSetting } from "./usage.ts";

export interface CheckOptions {
  readonly json: boolean;
  readonly run: boolean;
}

/** Settings about services outside this process. */
const remoteSetting = /^(AWS|AZURE|GOOGLE|HF|IDENTITY|REDIS|STORAGE)_/;

/** Ends the process, because a logits processor's module may have left a timer behind. */
export async function check(
  config: Config,
  settings: readonly DescribedSetting[],
  { json, run }: CheckOptions,
): Promise<never> {
  const logger = createLogger({ level: config.logLevel, write: writeTo(process.stderr) });
  const progress = createProgressDisplay(process.stderr, logger);
  const downloaded = new AbortController();
  const stopping = stopOnSignals(progress, downloaded.signal);
  let report: CheckReport;
  let exitCode: number;
  try {
    await loadConfiguredFormats(config);
    const gpu = await inspectGpu(config.engine);
    const inspection = await inspect(config, gpu, { onProgress: progress.show, signal: stopping });
    downloaded.abort();
    const fit = fitOf(config, inspection);
    const doesLoad = inspection.logitsProcessors.every((processor) => processor.error === null);
    exitCode = !doesLoad ? EXIT_USAGE : fit === "does not fit" ? EXIT_FAILED : 0;
    const measured = run && exitCode === 0 ? await measure(config, inspection, progress.show) : null;
    const remoteSettings = settings.filter(({ name, source }) => remoteSetting.test(name) && source !== "default");
    report = { config, inspection, gpu, remoteSettings, measured, isRunWanted: run, fit };
  } catch (error) {
    progress.stop();
    if (stopping.aborted) return endWith(stopping.reason as StopSignal);
    return fail(config, error, json);
  }
  progress.stop();
  await write(json ? `${JSON.stringify(toJsonReport(report), null, 2)}\n` : formatReport(report));
  return exitProcess(exitCode);
}

/** Time for unfinished files to be removed after a signal. */
const REMOVAL_MS = 2_000;

/**
 * Leaves the terminal as it was, and lets the signal end the process: at once after the first or once `downloaded` is
 * aborted, otherwise when unfinished downloads are removed.
 *
 * @returns Aborted by the first signal, whose name is the reason.
 */
function stopOnSignals(progress: ProgressDisplay, downloaded: AbortSignal): AbortSignal {
  const stopping = new AbortController();
  for (const signal of stopSignals) {
    process.once(signal, () => {
      progress.stop();
      if (stopping.signal.aborted || downloaded.aborted) return void endWith(signal);
      stopping.abort(signal);
      setTimeout(() => void endWith(signal), REMOVAL_MS);
    });
  }
  return stopping.signal;
}

/** Never resolves. */
async function endWith(signal: StopSignal): Promise<never> {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  return new Promise<never>(() => {});
}

async function inspect(
  config: Config,
  gpu: GpuInspection | null,
  { onProgress, signal }: { readonly onProgress: (progress: Progress) => void; readonly signal: AbortSignal },
): Promise<ModelInspection> {
  const createS3Client = loadsFromS3(config.engine) ? await loadS3ClientFactory(config) : undefined;
  const dependencies = { onProgress, ...(createS3Client && { createS3Client }) };
  return inspectModel(config.engine, dependencies, signal, gpu);
}

async function measure(
  config: Config,
  inspection: ModelInspection,
  onProgress: (progress: Progress) => void,
): Promise<CheckReport["measured"]> {
  const { runWorstCase } = await import("./check-run.ts");
  return runWorstCase(config, inspection, onProgress);
}

async function fail(config: Config, error: unknown, json: boolean): Promise<never> {
  const { model } = config.engine;
  const failure = describeLoadFailure(error, config);
  const code = error instanceof EngineError ? error.code : (failure?.code ?? "internal");
  const message = error instanceof Error ? error.message : String(error);
  const advice = failure?.advice ?? null;
  if (json) await write(`${JSON.stringify({ ok: false, model, error: { code, message, advice } }, null, 2)}\n`);
  console.error(`fovea: The model ${model} cannot be served: ${message}${advice === null ? "" : ` ${advice}`}`);
  return exitProcess(exitCodeOf(error));
}

/** Resolves when everything is written, which can take a while for a pipe. */
async function write(text: string): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  process.stdout.write(text, () => resolve());
  await promise;
}
