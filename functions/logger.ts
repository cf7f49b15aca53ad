/** Structured log: one JSON object per line. Callers pass no secrets and no request bodies. */
import process from "node:process";
import type { Writable } from "node:stream";

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

/** Days of errors, or minutes of requests: a reader of the log that stands still must not fill the memory. */
const MAX_QUEUED_BYTES = 16 * 1024 ** 2;

/** Errors among the fields are written with their stack, code and causes. */
export function createLogger({
  level,
  write = writeTo(process.stdout),
  now = () => new Date(),
}: LoggerOptions): Logger {
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

/**
 * Drops lines while more than `maxQueuedBytes` of earlier ones wait for the stream's reader. A line says how many, once
 * there is room again.
 */
export function writeTo(
  stream: Pick<Writable, "write" | "writableLength">,
  maxQueuedBytes = MAX_QUEUED_BYTES,
): (line: string) => void {
  let numDropped = 0;
  return (line) => {
    if (stream.writableLength > maxQueuedBytes) {
      numDropped += 1;
      return;
    }
    if (numDropped > 0) {
      const message = "Lines of the log were dropped, because its reader stood still.";
      stream.write(`${JSON.stringify({ time: new Date().toISOString(), level: "warn", message, numDropped })}\n`);
      numDropped = 0;
    }
    stream.write(line);
  };
}
