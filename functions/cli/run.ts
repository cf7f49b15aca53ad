/** The commands: `fovea serve`, `fovea worker`, `fovea check`, `fovea batch`, `fovea render`, `--help`, `--version`, `--print-config`. */
import { createLogger, writeTo } from "../logger.ts";
import { readVersion } from "../package-version.ts";
import { loadConfig, settingDescriptions, settingTopics } from "../settings/config.ts";
import type { Config } from "../settings/config.ts";
import { findNearNames } from "../settings/near-names.ts";
import { ConfigError } from "../settings/setting.ts";
import { parseArguments } from "./arguments.ts";
import type { Arguments, Command } from "./arguments.ts";
import { EXIT_FAILED, EXIT_PIPE, EXIT_USAGE } from "./exit-codes.ts";
import { exitProcess } from "./exit-process.ts";
import { serve } from "./serve.ts";
import { describeSettings, formatCommandHelp, formatConfig, formatHelp } from "./usage.ts";

/** Exits with 2 and lists all problems if the command line or the environment is invalid. */
export async function run(argv: readonly string[]): Promise<void> {
  // The reader of the log has ended; the command continues.
  process.stderr.on("error", () => {});
  const args = orExit(() => parseArguments(argv));
  if (writesReport(args)) process.stdout.on("error", exitWithoutReader);
  if (args.help !== null) {
    const { deploymentTargets } = await import("../../infra/targets.ts");
    const platforms = deploymentTargets.map(({ name }) => name);
    return void process.stdout.write(
      args.help === "command" ? formatCommandHelp(args.command, platforms) : formatHelp(settingTopics, platforms),
    );
  }
  if (args.version) return void process.stdout.write(`${readVersion()}\n`);
  if (args.command === "render") {
    if (args.rendering === null) throw new Error("render was accepted without a deployment.");
    const { render } = await import("./render.ts");
    return render(args.rendering).catch(exitOnConfigError);
  }

  warnOfNearNames();
  const config = orExit(() => loadConfig({ ...process.env, ...args.settings }));
  if (args.printConfig) {
    process.stdout.write(formatConfig(settingDescriptions, process.env, args.settings));
    return;
  }
  await runCommand(args.command, args, config);
}

async function runCommand(
  command: Exclude<Command, "render">,
  { json, run, files, settings }: Arguments,
  config: Config,
): Promise<void> {
  switch (command) {
    case "serve":
    case "worker": {
      if (config.jobs.source !== null) {
        await requireJobSource(config, config.jobs.source);
      } else if (command === "worker") {
        exitOnConfigError(new ConfigError(["worker needs JOB_SOURCE: the queue to take jobs from."]));
      }
      const logger = createLogger({ level: config.logLevel });
      return serve(config, logger, { servesRequests: command === "serve" });
    }
    case "check": {
      const { source } = config.jobs;
      // A worker of RunPod has variables that no other machine has.
      if (source !== null && source !== "runpod://") await requireJobSource(config, source);
      const { check } = await import("./check.ts");
      return check(config, describeSettings(settingDescriptions, process.env, settings), { json, run });
    }
    case "batch": {
      if (files === null) throw new Error("batch was accepted without files.");
      const { batch } = await import("./batch.ts");
      // Standard output may carry the results.
      const logger = createLogger({ level: config.logLevel, write: writeTo(process.stderr) });
      return batch(config, files, logger).catch(exitOnConfigError);
    }
  }
}

/** Ends the process if the queue's address is incomplete. */
async function requireJobSource({ jobs, s3 }: Config, address: string): Promise<void> {
  const { readJobSource, requireRegion } = await import("../jobs/sources/job-sources.ts");
  orExit(() => readJobSource(address, jobs.runpod));
  await requireRegion(address, s3.region).catch(exitOnConfigError);
}

/** Whether standard output has only a text that is of no use once its reader has ended, as in `fovea --help | head`. */
function writesReport({ help, version, printConfig, command }: Arguments): boolean {
  return help !== null || version || printConfig || command === "check" || command === "render";
}

function exitWithoutReader({ code }: NodeJS.ErrnoException): never {
  exitProcess(code === "EPIPE" ? EXIT_PIPE : EXIT_FAILED);
}

function warnOfNearNames(): void {
  const ourNames = settingDescriptions.map(({ name }) => name);
  for (const { found, meant } of findNearNames(process.env, ourNames)) {
    console.error(`fovea: ${found} is set but is not a setting; did you mean ${meant}?`);
  }
}

function orExit<Value>(parse: () => Value): Value {
  try {
    return parse();
  } catch (error) {
    return exitOnConfigError(error);
  }
}

/** Throws any other error. */
function exitOnConfigError(error: unknown): never {
  if (isMissingFolder(error)) {
    console.error("fovea: The working directory no longer exists. Start in a folder that does.");
    exitProcess(EXIT_USAGE);
  }
  if (!(error instanceof ConfigError)) throw error;
  for (const problem of error.problems) console.error(`fovea: ${problem}`);
  exitProcess(EXIT_USAGE);
}

/** Whether a relative path could not be made absolute. */
function isMissingFolder(error: unknown): boolean {
  return error instanceof Error && "syscall" in error && error.syscall === "uv_cwd";
}
