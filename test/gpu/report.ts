/** What an experiment found: checks that pass or fail, figures, and notes; a JSON file that is rewritten as it grows. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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
export const PART_SECONDS = 520;

/** Of cases that several processes share: every `count`-th from the `index`-th on, which counts from 1. */
export interface Shard {
  readonly index: number;
  readonly count: number;
}

export interface ReportOptions {
  /** Default `PART_SECONDS`. */
  readonly seconds?: number;
  /** Goes on with the report at the path: cases that were begun are not run again. Default false. */
  readonly resumes?: boolean;
  /** Default: all cases. */
  readonly shard?: Shard | null;
}

/** The report's file. */
export interface ReportFile extends ReportHeader {
  readonly status: "running" | "passed" | "failed";
  readonly seconds: number;
  /** The case under way; null between cases. */
  readonly running: string | null;
  /** Cases that have ended. */
  readonly cases: readonly string[];
  readonly checks: readonly Check[];
  readonly figures: readonly Figure[];
  readonly notes: readonly string[];
}

/** Mutable. Rewrites its file after every entry, so that a run that is cut short leaves what it found. */
export class Report {
  readonly checks: Check[] = [];
  readonly figures: Figure[] = [];
  readonly notes: string[] = [];
  readonly #path: string;
  readonly #header: ReportHeader;
  readonly #log: (line: string) => void;
  readonly #seconds: number;
  readonly #startedAt = performance.now();
  readonly #cases = new Set<string>();
  readonly #shard: Shard;
  #numCases = 0;
  readonly #groups: string[] = [];
  #secondsBefore = 0;
  #running: string | null = null;
  #reported: unknown = null;

  constructor(path: string, header: ReportHeader, log: (line: string) => void, options: ReportOptions = {}) {
    this.#path = path;
    this.#header = header;
    this.#log = log;
    this.#seconds = options.seconds ?? PART_SECONDS;
    this.#shard = options.shard ?? { index: 1, count: 1 };
    mkdirSync(dirname(path), { recursive: true });
    if (options.resumes === true) this.#resume(JSON.parse(readFileSync(path, "utf8")) as ReportFile);
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
   * @throws EngineError `device_lost`, after which no case of this process can succeed.
   */
  async attempt(name: string, action: () => void | Promise<void>): Promise<void> {
    const path = [...this.#groups, name].join(": ");
    const place = this.#numCases++ % this.#shard.count;
    if (place !== this.#shard.index - 1 || this.#cases.has(path)) return;
    if (this.secondsLeft <= 0) {
      return this.note(`${path}: left out, as the part has taken ${this.#seconds.toFixed(0)} s.`);
    }
    this.#running = path;
    this.#write("running");
    try {
      await this.#catch(path, action);
    } finally {
      this.#running = null;
      this.#cases.add(path);
      this.#write("running");
    }
  }

  /**
   * Runs cases that share what is made first. If that fails, the next group goes on.
   *
   * @throws EngineError as `attempt` does.
   */
  async group(name: string, action: () => void | Promise<void>): Promise<void> {
    this.#groups.push(name);
    try {
      await this.#catch(this.#groups.join(": "), action);
    } finally {
      this.#groups.pop();
    }
  }

  /** @param error Of an experiment that ended early. */
  finish(error?: unknown): boolean {
    if (error !== undefined) this.check("the experiment runs to its end", false, describe(error));
    const passed = this.checks.every((check) => check.passed);
    this.#write(passed ? "passed" : "failed");
    return passed;
  }

  /** Until the part has taken its time. */
  get secondsLeft(): number {
    return this.#seconds - this.#ownSeconds;
  }

  /** Of this process. */
  get #ownSeconds(): number {
    return (performance.now() - this.#startedAt) / 1000;
  }

  get #elapsedSeconds(): number {
    return this.#secondsBefore + this.#ownSeconds;
  }

  async #catch(name: string, action: () => void | Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      // A case within a group has reported what it throws.
      if (this.#reported !== error) this.check(name, false, describe(error));
      this.#reported = error;
      if (error instanceof EngineError && error.code === "device_lost") throw error;
    }
  }

  /** A case that was under way ended its process. */
  #resume({ checks, figures, notes, cases, running, seconds }: ReportFile): void {
    this.checks.push(...checks);
    this.figures.push(...figures);
    this.notes.push(...notes);
    this.#secondsBefore = seconds;
    for (const name of cases) this.#cases.add(name);
    if (running === null) return;
    this.#cases.add(running);
    this.check(running, false, "the process ended in this case, or was ended because the case took too long");
  }

  #say(line: string): void {
    const seconds = this.#elapsedSeconds.toFixed(0).padStart(4);
    this.#log(`[${seconds} s] ${line}`);
    this.#write("running");
  }

  #write(status: "running" | "passed" | "failed"): void {
    const { checks, figures, notes } = this;
    const progress = { status, seconds: this.#elapsedSeconds, running: this.#running, cases: [...this.#cases] };
    const content: ReportFile = { ...this.#header, ...progress, checks, figures, notes };
    writeFileSync(this.#path, `${JSON.stringify(content, null, 2)}\n`);
  }
}

function describe(error: unknown): string {
  if (error instanceof EngineError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
