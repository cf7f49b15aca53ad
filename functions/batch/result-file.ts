/** Where the results of a batch go: a file that grows by whole lines and says on the next run what it has already. */
import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { z } from "zod";

import { ConfigError } from "../settings/config.ts";
import { readLines } from "./numbered-lines.ts";
import { resultLinePrefix } from "./result-line.ts";
import type { ResultLine } from "./result-line.ts";

/** Far above what any answer comes to. */
export const MAX_RESULT_BYTES = 512 * 1024 ** 2;
const CHUNK_BYTES = 1024 ** 2;
const NEWLINE = 10;

/** What a result file has of a batch. */
export interface DoneLines {
  /** Of the lines that have a response. */
  readonly customIds: ReadonlySet<string>;
  /** Of these, with status 200. */
  readonly numSucceeded: number;
  /** Numbers of the lines that are reported to be no requests. */
  readonly badLines: ReadonlySet<number>;
}

export interface ResultSink {
  /** Resolves when the line is written whole, after those before it. Rejects where it cannot be. */
  append(line: ResultLine): Promise<void>;
  close(): Promise<void>;
}

export interface ResultFile extends ResultSink {
  readonly done: DoneLines;
}

/**
 * Opens a result file to be continued, or makes it; errors call it `shown`. A line that a killed run has left unfinished at the end is cut off.
 *
 * @throws ConfigError for a file that cannot be opened, or that holds anything but results: it is left as it is.
 */
export async function openResultFile(path: string, shown: string = `--output ${path}`): Promise<ResultFile> {
  const file = await open(path, "a+").catch((cause: unknown) => {
    throw new ConfigError([`${shown} cannot be written: ${reasonOf(cause)}.`]);
  });
  try {
    const done = await readDone(file, shown);
    return { ...createSink((text) => file.appendFile(text)), done, close: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Results as a stream, which nothing is known of afterwards. */
export function createResultStream(stream: NodeJS.WritableStream): ResultFile {
  // Told by the write that fails.
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
      last = last.then(() => write(`${JSON.stringify(line)}\n`));
      return last;
    },
  };
}

/** Mutable: what is found while results are read. */
export interface FoundLines {
  readonly customIds: Set<string>;
  numSucceeded: number;
  readonly badLines: Set<number>;
}

export function noLines(): FoundLines {
  return { customIds: new Set(), numSucceeded: 0, badLines: new Set() };
}

/** Of a line as much as says what it is the result of. */
const doneLine = z.union([
  z.object({ custom_id: z.string(), response: z.object({ status_code: z.int() }) }),
  z.object({ response: z.null(), error: z.object({ line: z.int() }) }),
]);

async function readDone(file: FileHandle, shown: string): Promise<DoneLines> {
  const done = noLines();
  const stats = await file.stat();
  if (!stats.isFile()) throw new ConfigError([`${shown} is not a file; - is standard output.`]);
  const end = await endOfWholeLines(file, stats.size);
  for await (const { lineNumber, text } of readLines(readChunks(file, end), MAX_RESULT_BYTES)) {
    if (addDone(done, text)) continue;
    throw new ConfigError([`${shown} holds other things than results: line ${lineNumber} is none.`]);
  }
  const rest = (await readBytes(file, end, stats.size)).toString();
  if (rest === "") return done;
  if (addDone(done, rest)) await file.appendFile("\n");
  else if (rest.startsWith(resultLinePrefix.slice(0, rest.length))) await file.truncate(end);
  else throw new ConfigError([`${shown} holds other things than results: its last line is none.`]);
  return done;
}

async function* readChunks(file: FileHandle, end: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < end; start += CHUNK_BYTES) {
    yield await readBytes(file, start, Math.min(end, start + CHUNK_BYTES));
  }
}

/** False for a text that is no result. Of several results of a line the first counts. */
export function addDone(found: FoundLines, text: string): boolean {
  const line = doneLine.safeParse(parseOrNull(text)).data;
  if (line === undefined) return false;
  if (line.response === null) found.badLines.add(line.error.line);
  else if (!found.customIds.has(line.custom_id)) {
    found.customIds.add(line.custom_id);
    if (line.response.status_code === 200) found.numSucceeded += 1;
  }
  return true;
}

/** Where the text behind the last line end begins. */
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
