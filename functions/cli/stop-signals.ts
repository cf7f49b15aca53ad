/** Detects requests to end the process: signals, and the end of the npm or npx that runs it. */
import { existsSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";

import { exitCodeOfSignal } from "./exit-codes.ts";
import { exitProcess } from "./exit-process.ts";

export type StopSignal = keyof typeof exitCodeOfSignal;

export const stopSignals = Object.keys(exitCodeOfSignal) as readonly StopSignal[];

/** npm forwards a signal that the process may already have received: Ctrl-C and systemd signal the whole group. */
const SAME_SIGNAL_MS = 1000;
/** SIGKILL ends npm without notice to its child, so the parent process is polled. */
const PARENT_POLL_MS = 500;

/**
 * Calls `onStop` at the first SIGTERM or SIGINT, or SIGHUP, which a terminal sends when it closes. If npm or npx started
 * the process, also calls it, as for SIGTERM, when npm has ended. A second signal ends the process at once, with the
 * signal's exit code; a second SIGHUP does nothing, because both the kernel and the shell send it.
 */
export function onStopSignal(onStop: (signal: StopSignal, cause: { readonly hasParentEnded: boolean }) => void): void {
  const isRunByNpm = isStartedByNpm(process.env);
  let firstAt: number | null = null;
  const stop = (signal: StopSignal, hasParentEnded: boolean): void => {
    const now = performance.now();
    if (firstAt === null) {
      firstAt = now;
      onStop(signal, { hasParentEnded });
    } else if (signal !== "SIGHUP" && !hasParentEnded && (!isRunByNpm || now - firstAt > SAME_SIGNAL_MS)) {
      exitProcess(exitCodeOfSignal[signal]);
    }
  };
  for (const signal of stopSignals) process.on(signal, () => stop(signal, false));
  if (isRunByNpm) whenParentEnds(() => stop("SIGTERM", true));
}

/** A script or `npx` that begins with our command. npm passes its environment on to all descendants of other scripts. */
const ownCommand = /^'?(\S*\/)?fovea'?(\s|$)/;

/**
 * Whether the parent is npm itself or a shell that ends with it. npx and scripts such as `"start": "fovea serve"` have
 * such a shell: npm passes a signal on to the shell, but the shell does not.
 */
function isStartedByNpm(environment: NodeJS.ProcessEnv): boolean {
  const {
    npm_lifecycle_event: script,
    npm_lifecycle_script: command = "",
    npm_package_json: packageFile = "",
  } = environment;
  if (ownCommand.test(command)) return true;
  // In this repository, the script replaces npm's shell with Node.
  if (script !== "start" || !existsSync(packageFile)) return false;
  const ownPackageFile = createRequire(import.meta.url).resolve("fovea/package.json");
  return realpathSync(packageFile) === realpathSync(ownPackageFile);
}

/** An orphan gets another parent. Does not keep the process alive. */
function whenParentEnds(onEnd: () => void): void {
  const parentId = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parentId) return;
    clearInterval(timer);
    onEnd();
  }, PARENT_POLL_MS).unref();
}
