/** Structured log: one JSON object per line. Callers pass no secrets and no request bodies. */
import process from "node:process";

import type { LogLevel } from "./settings/service.ts";

type LogFields = Readonly<Record<string, unknown>>;

export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface LoggerOptions {
  readonly level: LogLevel;
  /** Receives one line, including its newline. Default: standard output. */
  readonly write?: (line: string) => void;
  readonly now?: () => Date;
}

const severity = { debug: 0, info: 1, warn: 2, error: 3 } as const satisfies Record<LogLevel, number>;

/** Errors among the fields are written with their stack, code and causes. */
export function createLogger({ level, write = toStdout, now = () => new Date() }: LoggerOptions): Logger {
  const logAt =
    (lineLevel: LogLevel) =>
    (message: string, fields: LogFields = {}): void => {
      if (severity[lineLevel] < severity[level]) return;
      write(`${JSON.stringify({ time: now().toISOString(), level: lineLevel, message, ...fields }, describeError)}\n`);
    };
  return { debug: logAt("debug"), info: logAt("info"), warn: logAt("warn"), error: logAt("error") };
}

function describeError(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  const code = "code" in value ? value.code : undefined;
  return { name, code, message, stack, cause };
}

function toStdout(line: string): void {
  process.stdout.write(line);
}
