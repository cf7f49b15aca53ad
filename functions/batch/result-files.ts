/** Creates the two result files of a batch: the answers, and the lines that were rejected or never started. */
import { z } from "zod";

import { StorageError } from "../storage/object-store.ts";
import { parseBatchLine } from "./batch-line.ts";
import type { BatchRecord, BatchUsage } from "./batch-record.ts";
import { readLines } from "./numbered-lines.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import { addResult, MAX_RESULT_BYTES, noLines, parseResult } from "./result-file.ts";
import type { DoneLines, FoundLines, StoredResult } from "./result-file.ts";
import { expiredLine, toText } from "./result-line.ts";
import type { ResultLog } from "./result-log.ts";
import type { StoredFiles } from "./stored-files.ts";

export interface ResultFiles {
  readonly outputFileId: string | null;
  readonly errorFileId: string | null;
  readonly numSucceeded: number;
  readonly numFailed: number;
  readonly usage: BatchUsage | null;
}

/** Lines of an input, each of which must have a result. */
export interface ExpectedLines {
  readonly customIds: Pick<ReadonlySet<string>, "has" | "size">;
  /** Numbers of the invalid lines. */
  readonly badLines: Pick<ReadonlySet<number>, "has" | "size">;
}

/** The log lacks results of answered lines: they have to be answered again. */
class MissingResultsError extends Error {
  override readonly name = "MissingResultsError";

  constructor(numFound: number, numExpected: number) {
    super(`The log of results has ${numFound} of ${numExpected} lines.`);
  }
}

/** Of a chat or completion. */
const chatUsage = z.object({
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  prompt_tokens_details: z.object({ cached_tokens: z.int() }).nullish(),
  completion_tokens_details: z.object({ reasoning_tokens: z.int() }).nullish(),
});
/** Of a Response, whose names are those of batches. */
const responseUsage = z.object({
  input_tokens: z.int(),
  input_tokens_details: z.object({ cached_tokens: z.int() }),
  output_tokens: z.int(),
  output_tokens_details: z.object({ reasoning_tokens: z.int() }),
});
/** The part of an answer that the sums need. */
const answeredLine = z.object({
  response: z.object({
    body: z.object({
      usage: z.union([
        responseUsage,
        chatUsage.transform((usage): z.output<typeof responseUsage> => ({
          input_tokens: usage.prompt_tokens,
          input_tokens_details: { cached_tokens: usage.prompt_tokens_details?.cached_tokens ?? 0 },
          output_tokens: usage.completion_tokens,
          output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
        })),
      ]),
    }),
  }),
});

export interface ResultSources {
  /** Must be flushed. */
  readonly log: ResultLog;
  /** The files contain exactly these lines; null accepts everything in the log. */
  readonly expected: ExpectedLines | null;
  /** Reads the input, whose lines without a result are then reported as expired; null reports none. */
  readonly readInput: (() => Promise<AsyncIterable<NumberedLine> | null>) | null;
}

/**
 * Can be repeated for the same batch: the files replace earlier ones. No file is created when there are no lines.
 *
 * @throws MissingResultsError, before a file is stored, if the log lacks expected lines.
 */
export async function writeResultFiles(
  { batch, tenant, outputFileId, errorFileId, outputExpiresAfterSeconds: expiresAfterSeconds }: BatchRecord,
  { log, expected, readInput }: ResultSources,
  files: StoredFiles,
): Promise<ResultFiles> {
  const sums = { input_tokens: 0, cached_tokens: 0, output_tokens: 0, reasoning_tokens: 0 };
  let numFailed = 0;
  /**
   * The findings of the pass for the first file. The second pass must find the same, although another worker may write
   * to the log.
   */
  const first = { found: null as DoneLines | null };

  async function* results() {
    const found = noLines();
    yield* distinctResults(log, first.found ?? expected, found);
    if (expected !== null) checkComplete(found, expected);
    if (first.found !== null) checkSame(found, first.found);
    first.found ??= found;
  }

  async function* succeeded(): AsyncGenerator<Uint8Array> {
    for await (const { text, result } of results()) {
      if (!isSuccess(result)) continue;
      const usage = answeredLine.safeParse(result.json).data?.response.body.usage;
      sums.input_tokens += usage?.input_tokens ?? 0;
      sums.cached_tokens += usage?.input_tokens_details.cached_tokens ?? 0;
      sums.output_tokens += usage?.output_tokens ?? 0;
      sums.reasoning_tokens += usage?.output_tokens_details.reasoning_tokens ?? 0;
      yield Buffer.from(`${text}\n`);
    }
  }

  async function* failed(): AsyncGenerator<Uint8Array> {
    for await (const { text, result } of results()) {
      if (isSuccess(result)) continue;
      numFailed += 1;
      yield Buffer.from(`${text}\n`);
    }
    const input = await readInput?.();
    if (input) yield* expired(input, first.found ?? noLines());
  }

  async function store(id: string, suffix: string, lines: AsyncGenerator<Uint8Array>): Promise<string | null> {
    const line = await lines.next();
    if (line.done) return null;
    const numBytes = await files.receive(id, startingWith(line.value, lines));
    const filename = `${batch.id}_${suffix}.jsonl`;
    await files.publish(tenant, { id, numBytes, filename, purpose: "batch_output", expiresAfterSeconds });
    return id;
  }

  const outputFile = await store(outputFileId, "output", succeeded());
  const errorFile = await store(errorFileId, "error", failed());
  const numSucceeded = first.found?.numSucceeded ?? 0;
  return { outputFileId: outputFile, errorFileId: errorFile, numSucceeded, numFailed, usage: toUsage(sums) };
}

async function* startingWith(first: Uint8Array, rest: AsyncGenerator<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield first;
  yield* rest;
}

/**
 * The first result of each line, which is added to `found`. A second result comes from two workers, one of which had
 * lost its lock. Damaged lines are skipped.
 */
export async function* distinctResults(
  log: Pick<ResultLog, "read">,
  expected: ExpectedLines | null,
  found: FoundLines,
) {
  for await (const { text } of readLines(log.read(), MAX_RESULT_BYTES)) {
    const result = parseResult(text);
    if (result === null || (expected !== null && !isExpected(result, expected))) continue;
    if (addResult(found, result)) yield { text, result };
  }
}

function isExpected(result: StoredResult, { customIds, badLines }: ExpectedLines): boolean {
  return result.kind === "answer" ? customIds.has(result.customId) : badLines.has(result.lineNumber);
}

function isSuccess(result: StoredResult): result is StoredResult & { readonly kind: "answer" } {
  return result.kind === "answer" && result.isSuccess;
}

/** `found` must not contain lines that are not expected. */
function checkComplete(found: DoneLines, expected: ExpectedLines): void {
  const [numFound, numExpected] = [found, expected].map(({ customIds, badLines }) => customIds.size + badLines.size);
  if (numFound !== numExpected) throw new MissingResultsError(numFound!, numExpected!);
}

function checkSame(found: DoneLines, first: DoneLines): void {
  const isSame =
    found.customIds.size === first.customIds.size &&
    found.badLines.size === first.badLines.size &&
    found.numSucceeded === first.numSucceeded;
  if (!isSame) throw new StorageError("Reading results", new Error("the log changed during the read"));
}

async function* expired(input: AsyncIterable<NumberedLine>, done: DoneLines): AsyncGenerator<Uint8Array> {
  for await (const numbered of input) {
    const line = parseBatchLine(numbered);
    if (line.kind === "good" && !done.customIds.has(line.customId)) {
      yield Buffer.from(toText(expiredLine(line)));
    }
  }
}

function toUsage(sums: {
  readonly input_tokens: number;
  readonly cached_tokens: number;
  readonly output_tokens: number;
  readonly reasoning_tokens: number;
}): BatchUsage {
  return {
    input_tokens: sums.input_tokens,
    input_tokens_details: { cached_tokens: sums.cached_tokens },
    output_tokens: sums.output_tokens,
    output_tokens_details: { reasoning_tokens: sums.reasoning_tokens },
    total_tokens: sums.input_tokens + sums.output_tokens,
  };
}
