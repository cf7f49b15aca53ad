/**
 * Runs a part in a process of its own and goes on with the next case in another one, if a case ends the process or takes
 * too long: a kernel that reads beyond its memory makes the device unusable for its whole process.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import process from "node:process";

import type { ReportFile } from "./report.ts";
import type { ExperimentOutcome } from "./run-experiment.ts";

export const exitCodes: Readonly<Record<ExperimentOutcome, number>> = { passed: 0, failed: 1, lost: 75, unusable: 69 };

/** A part whose every case ends its process would otherwise use up the machine's time. */
const MAX_PROCESSES = 12;

/** A case reports nothing for at most this long; a kernel that hangs never ends. */
const DEFAULT_CASE_SECONDS = 150;

/** For the start of a process, in which the report still names the case that ended the last one. */
const START_SECONDS = 60;

/** For the case under way when the time is up. */
const GRACE_SECONDS = 20;

export interface SuperviseOptions {
  readonly log: (line: string) => void;
  /** Default 150. */
  readonly caseSeconds?: number;
}

/**
 * @param path Of the part's report.
 * @param endsAt By `performance.now()`.
 * @param argumentsOf Of Node.
 */
export async function supervisePart(
  path: string,
  endsAt: number,
  argumentsOf: (secondsLeft: number, resumes: boolean) => readonly string[],
  { log, caseSeconds = DEFAULT_CASE_SECONDS }: SuperviseOptions,
): Promise<ExperimentOutcome> {
  for (let numProcesses = 0; numProcesses < MAX_PROCESSES; numProcesses++) {
    const secondsLeft = Math.max((endsAt - performance.now()) / 1000, 1);
    const resumes = numProcesses > 0 && existsSync(path);
    const code = await runProcess(argumentsOf(secondsLeft, resumes), path, endsAt, caseSeconds);
    const outcome = outcomes.find((name) => exitCodes[name] === code);
    if (outcome !== undefined && outcome !== "lost") {
      // Cases that ended an earlier process have failed.
      return outcome;
    }
    if (outcome === undefined && runningCase(path) === null) {
      log("The process ended between two cases.");
      return "failed";
    }
    if (performance.now() > endsAt) return "failed";
    log("The process ended in a case. Another one goes on with the next case.");
  }
  return "failed";
}

const outcomes = Object.keys(exitCodes) as ExperimentOutcome[];

/** Null for a process that a signal ended, ours included. */
async function runProcess(
  args: readonly string[],
  path: string,
  endsAt: number,
  caseSeconds: number,
): Promise<number | null> {
  const child = spawn(process.execPath, args, { stdio: "inherit" });
  const startedMs = Date.now();
  const watch = setInterval(() => {
    const isLate = performance.now() > endsAt + GRACE_SECONDS * 1000;
    if (isLate || isStuck(path, startedMs, caseSeconds)) child.kill("SIGKILL");
  }, 1000);
  try {
    return await new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", resolve);
    });
  } finally {
    clearInterval(watch);
  }
}

/** @param startedMs When the process was started. */
function isStuck(path: string, startedMs: number, caseSeconds: number): boolean {
  if (runningCase(path) === null) return false;
  const { mtimeMs } = statSync(path);
  const seconds = mtimeMs < startedMs ? START_SECONDS + caseSeconds : caseSeconds;
  return Date.now() - Math.max(mtimeMs, startedMs) > seconds * 1000;
}

function runningCase(path: string): string | null {
  try {
    return (JSON.parse(readFileSync(path, "utf8")) as ReportFile).running;
  } catch {
    // Not written yet, or being written.
    return null;
  }
}
