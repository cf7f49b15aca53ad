/** The results file of a batch: it grows by whole lines, and the next run reads from it what is done. */
import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { z } from "zod";

import { ConfigError } from "../settings/setting.ts";
import { readLines } from "./numbered-lines.ts";
import { resultLinePrefix, toText } from "./result-line.ts";
import type { ResultLine } from "./result-line.ts";

/** Far above the size of any answer. */
export const MAX_RESULT_BYTES = 512 * 1024 ** 2;
const CHUNK_BYTES = 1024 ** 2;
const NEWLINE = 10;

/** The lines of a batch that have a result. */
export interface DoneLines {
  /** Ids of the lines that have a response. */
  readonly customIds: ReadonlySet<string>;
  /** Number of these with status 200. */
  readonly numSucceeded: number;
  /** Numbers of the lines that are reported as invalid. */
  readonly badLines: ReadonlySet<number>;
}

export interface ResultSink {
  /** Resolves when the whole line is written, after earlier ones. Rejects if it cannot be written. */
  append(line: ResultLine): Promise<void>;
  close(): Promise<void>;
}

export interface ResultFile extends ResultSink {
  readonly done: DoneLines;
}

export interface SyncedResultFile extends ResultFile {
  /** Resolves when all appended lines are on the disk and survive a loss of power. */
  sync(): Promise<void>;
}

export interface ResultFileOptions {
  /** The file's name in errors. Default: `--output` and its path. */
  readonly shown?: string;
  /** Called for each line that is not a result, which is then left unchanged. Default: such a file is rejected. */
  readonly onDamagedLine?: (lineNumber: number) => void;
}

/**
 * Opens a results file to resume it, or creates it. An incomplete line at its end, left by a killed run, is cut off.
 *
 * @throws ConfigError for a file that cannot be opened, or that is rejected and left unchanged.
 */
export async function openResultFile(
  path: string,
  { shown = `--output ${path}`, onDamagedLine }: ResultFileOptions = {},
): Promise<SyncedResultFile> {
  const file = await open(path, "a+").catch((cause: unknown) => {
    throw new ConfigError([`${shown} cannot be written: ${reasonOf(cause)}.`]);
  });
  try {
    const done = await readDone(file, shown, onDamagedLine);
    return {
      ...createSink((text) => file.appendFile(text)),
      done,
      sync: () => file.datasync(),
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Results as a stream, which later runs cannot resume. */
export function createResultStream(stream: NodeJS.WritableStream): ResultFile {
  // The failing write rejects with the error.
  stream.on("error", () => {});
  const write = async (text: string): Promise<void> => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    stream.write(text, (error) => (error ? reject(error) : resolve()));
    await promise;
  };
  return { ...createSink(write), done: noLines(), close: async () => {} };
}

function createSink(write: (text: string) => Promise<void>): Pick<ResultSink, "append"> {
  let last = Promise.resolve();
  return {
    append(line) {
      last = last.then(() => write(toText(line)));
      return last;
    },
  };
}

/** Mutable: collects findings while results are read. */
export interface FoundLines {
  readonly customIds: Set<string>;
  numSucceeded: number;
  readonly badLines: Set<number>;
}

export function noLines(): FoundLines {
  return { customIds: new Set(), numSucceeded: 0, badLines: new Set() };
}

/** The part of a line that identifies the input line it answers. */
const doneLine = z.union([
  z.object({ custom_id: z.string(), response: z.object({ status_code: z.int() }) }),
  z.object({ response: z.null(), error: z.object({ line: z.int() }) }),
]);

async function readDone(
  file: FileHandle,
  shown: string,
  onDamagedLine: ResultFileOptions["onDamagedLine"],
): Promise<DoneLines> {
  const done = noLines();
  const stats = await file.stat();
  if (!stats.isFile()) throw new ConfigError([`${shown} is not a file; - is standard output.`]);
  const damaged = (which: string, lineNumber: number): void => {
    if (onDamagedLine === undefined)
      throw new ConfigError([`${shown} contains something other than results: ${which}.`]);
    onDamagedLine(lineNumber);
  };
  const end = await endOfWholeLines(file, stats.size);
  let numLines = 0;
  for await (const { lineNumber, text } of readLines(readChunks(file, end), MAX_RESULT_BYTES)) {
    numLines = lineNumber;
    if (!addDone(done, text)) damaged(`line ${lineNumber} is not a result`, lineNumber);
  }
  const rest = (await readBytes(file, end, stats.size)).toString();
  if (rest === "") return done;
  if (!addDone(done, rest)) {
    if (rest.startsWith(resultLinePrefix.slice(0, rest.length))) {
      await file.truncate(end);
      return done;
    }
    damaged("its last line is not a result", numLines + 1);
  }
  await file.appendFile("\n");
  return done;
}

async function* readChunks(file: FileHandle, end: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < end; start += CHUNK_BYTES) {
    yield await readBytes(file, start, Math.min(end, start + CHUNK_BYTES));
  }
}

/** A line of a results file; `json` is the whole line. */
export type StoredResult =
  | { readonly kind: "answer"; readonly customId: string; readonly isSuccess: boolean; readonly json: unknown }
  | { readonly kind: "bad line"; readonly lineNumber: number };

/** Null for a text that is not a result. */
export function parseResult(text: string): StoredResult | null {
  const json = parseOrNull(text);
  const line = doneLine.safeParse(json).data;
  if (line === undefined) return null;
  if (line.response === null) return { kind: "bad line", lineNumber: line.error.line };
  return { kind: "answer", customId: line.custom_id, isSuccess: line.response.status_code === 200, json };
}

/** Of several results of a line, the first counts; returns false for the others. */
export function addResult(found: FoundLines, result: StoredResult): boolean {
  if (result.kind === "bad line") {
    if (found.badLines.has(result.lineNumber)) return false;
    found.badLines.add(result.lineNumber);
    return true;
  }
  if (found.customIds.has(result.customId)) return false;
  found.customIds.add(result.customId);
  if (result.isSuccess) found.numSucceeded += 1;
  return true;
}

/** Returns false for a text that is not a result. */
export function addDone(found: FoundLines, text: string): boolean {
  const result = parseResult(text);
  if (result !== null) addResult(found, result);
  return result !== null;
}

/** Position after the last line end. */
async function endOfWholeLines(file: FileHandle, numBytes: number): Promise<number> {
  for (let end = numBytes; end > 0; end -= CHUNK_BYTES) {
    const start = Math.max(0, end - CHUNK_BYTES);
    const newline = (await readBytes(file, start, end)).lastIndexOf(NEWLINE);
    if (newline !== -1) return start + newline + 1;
  }
  return 0;
}

async function readBytes(file: FileHandle, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.alloc(Math.min(end - start, MAX_RESULT_BYTES));
  const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, start);
  return bytes.subarray(0, bytesRead);
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
