/** What an experiment found: checks that pass or fail, figures, and notes; a JSON file that is rewritten as it grows. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

import { EngineError } from "../../engine/contract/errors.ts";
import type { Machine } from "./machine.ts";

export interface Check {
  readonly name: string;
  readonly passed: boolean;
  readonly detail?: string;
}

export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
}

export interface ReportHeader {
  readonly experiment: string;
  readonly title: string;
  readonly device: string;
  readonly machine: Machine;
}

/** Machines are lent for ten minutes at a time; the case that is under way may still end. */
const PART_SECONDS = 520;

/** Mutable. Rewrites its file after every entry, so that a run that is cut short leaves what it found. */
export class Report {
  readonly checks: Check[] = [];
  readonly figures: Figure[] = [];
  readonly notes: string[] = [];
  readonly #path: string;
  readonly #header: ReportHeader;
  readonly #log: (line: string) => void;
  readonly #startedAt = performance.now();

  constructor(path: string, header: ReportHeader, log: (line: string) => void) {
    this.#path = path;
    this.#header = header;
    this.#log = log;
    mkdirSync(dirname(path), { recursive: true });
    this.#write("running");
  }

  check(name: string, passed: boolean, detail?: string): void {
    this.checks.push({ name, passed, ...(detail !== undefined && { detail }) });
    this.#say(`${passed ? "pass" : "FAIL"}  ${name}${detail === undefined ? "" : `: ${detail}`}`);
  }

  figure(name: string, value: number, unit: string): void {
    this.figures.push({ name, value, unit });
    this.#say(`      ${name}: ${Number(value.toPrecision(4))} ${unit}`);
  }

  note(text: string): void {
    this.notes.push(text);
    this.#say(`      ${text}`);
  }

  /**
   * Runs one case; what it throws becomes a failed check, and the next case goes on. Once a part has taken its time,
   * cases are noted as left out.
   *
   * @throws EngineError `device_lost`, after which no case can succeed.
   */
  async attempt(name: string, action: () => void | Promise<void>): Promise<void> {
    if (this.#elapsedSeconds > PART_SECONDS) {
      return this.note(`${name}: left out, as the part has taken ${PART_SECONDS} s.`);
    }
    try {
      await action();
    } catch (error) {
      this.check(name, false, describe(error));
      if (error instanceof EngineError && error.code === "device_lost") throw error;
    }
  }

  /** @param error Of an experiment that ended early. */
  finish(error?: unknown): boolean {
    if (error !== undefined) this.check("the experiment runs to its end", false, describe(error));
    const passed = this.checks.every((check) => check.passed);
    this.#write(passed ? "passed" : "failed");
    return passed;
  }

  get #elapsedSeconds(): number {
    return (performance.now() - this.#startedAt) / 1000;
  }

  #say(line: string): void {
    const seconds = this.#elapsedSeconds.toFixed(0).padStart(4);
    this.#log(`[${seconds} s] ${line}`);
    this.#write("running");
  }

  #write(status: "running" | "passed" | "failed"): void {
    const { checks, figures, notes } = this;
    const content = { ...this.#header, status, seconds: this.#elapsedSeconds, checks, figures, notes };
    writeFileSync(this.#path, `${JSON.stringify(content, null, 2)}\n`);
  }
}

function describe(error: unknown): string {
  if (error instanceof EngineError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
