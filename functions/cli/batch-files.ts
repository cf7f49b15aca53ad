/** Inputs and results of `fovea batch`: files, standard input and output, and objects of S3. */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { addAbortSignal } from "node:stream";
import type { Readable } from "node:stream";

import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import { readLines } from "../batch/numbered-lines.ts";
import type { NumberedLine } from "../batch/numbered-lines.ts";
import { createResultStream, openResultFile } from "../batch/result-file.ts";
import type { ResultFile } from "../batch/result-file.ts";
import type { S3Results } from "../batch/s3-results.ts";
import { readObject } from "../jobs/targets.ts";
import type { S3Location } from "../jobs/targets.ts";
import type { Logger } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { ConfigError } from "../settings/setting.ts";
import { OutputError } from "./output-failure.ts";
import type { Progress } from "./progress.ts";

export interface BatchFiles {
  /** Path, `s3://bucket/key`, or `-` for standard input. */
  readonly input: string;
  /** Path or `s3://bucket/key` of results to resume, or `-` for standard output. */
  readonly output: string;
}

export interface OpenedFiles {
  /** `show` gets the progress of the reading where the number of lines is not known. */
  readonly readInput: (signal: AbortSignal, show: (progress: Progress) => void) => AsyncIterable<NumberedLine>;
  /** Null if it is unknown until all lines have been read. */
  readonly numLines: number | null;
  readonly results: ResultFile;
  /** Call it when every line has a result. */
  readonly finish: () => Promise<void>;
  /** Never rejects for results on S3. */
  readonly close: () => Promise<void>;
}

/**
 * @param signal Once it is aborted, results that S3 does not take are no longer retried.
 * @throws ConfigError for files that cannot be read or written, or that are the same.
 */
export async function openBatchFiles(
  { input, output }: BatchFiles,
  { config, logger, signal }: { readonly config: Config; readonly logger: Logger; readonly signal: AbortSignal },
): Promise<OpenedFiles> {
  const [from, to] = [readLocation("--input", input), readLocation("--output", output)];
  const maxLineBytes = config.maxBodyBytes + LINE_ROOM_BYTES;
  if (from !== null && to !== null && from.bucket === to.bucket && from.key === to.key) {
    throw new ConfigError([`--input and --output are the same object, ${input}.`]);
  }
  // S3's client takes longer to load than the rest of the command.
  const s3 =
    from === null && to === null
      ? null
      : await import("./s3-batch-files.ts").then(({ openS3BatchFiles }) => openS3BatchFiles(config));
  const readFrom = from === null ? undefined : await s3?.openInput(from);
  const numLines = from === null ? await countLines({ input, output }, maxLineBytes) : null;
  const openResults = async (): Promise<ResultFile & Partial<Pick<S3Results, "finish">>> => {
    if (to !== null && s3 !== null) return s3.openResults(to, logger, signal);
    return output === "-"
      ? naming("Standard output", createResultStream(process.stdout))
      : naming(`--output ${output}`, await openResultFile(output));
  };
  const results = await openResults();
  return {
    readInput: (stopSignal, show) =>
      readLines(addAbortSignal(stopSignal, readFrom?.(show) ?? openInput(input)), maxLineBytes),
    numLines,
    results,
    async finish() {
      await results.finish?.();
    },
    async close() {
      await results.close();
      s3?.close();
    },
  };
}

/** Errors of writing name the place. */
function naming(place: string, results: ResultFile): ResultFile {
  return {
    ...results,
    async append(line) {
      await results.append(line).catch((cause: unknown) => {
        throw new OutputError(place, cause);
      });
    },
  };
}

/** Null for a path. */
function readLocation(flag: string, text: string): S3Location | null {
  if (!/^s3:/i.test(text)) return null;
  const object = readObject(text);
  if (object !== null) return object;
  throw new ConfigError([`${flag} is ${text}: expected s3://bucket/key of an object.`]);
}

function openInput(input: string): Readable {
  return input === "-" ? process.stdin : createReadStream(input);
}

/** Null for standard input. */
async function countLines({ input, output }: BatchFiles, maxLineBytes: number): Promise<number | null> {
  if (input === "-") return null;
  try {
    const [ofInput, ofOutput] = await Promise.all([stat(input), stat(output).catch(() => null)]);
    if (ofInput.dev === ofOutput?.dev && ofInput.ino === ofOutput.ino) {
      throw new ConfigError([`--input and --output are the same file, ${input}.`]);
    }
    if (ofInput.isDirectory()) throw new ConfigError([`--input ${input} is a folder: name a file in it.`]);
    let numLines = 0;
    if (!ofInput.isFile()) return null;
    for await (const _ of readLines(openInput(input), maxLineBytes)) numLines += 1;
    return numLines;
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError([
      `--input ${input} cannot be read: ${error instanceof Error ? error.message : String(error)}.`,
    ]);
  }
}
