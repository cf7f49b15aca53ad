/** Makes the two files of a batch's results: what was answered, and what was refused or never begun. */
import { z } from "zod";

import { parseBatchLine } from "./batch-line.ts";
import type { BatchRecord, BatchUsage } from "./batch-record.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import { readLines } from "./numbered-lines.ts";
import { MAX_RESULT_BYTES } from "./result-file.ts";
import type { DoneLines } from "./result-file.ts";
import type { ResultLog } from "./result-log.ts";
import { expiredLine } from "./result-line.ts";
import type { StoredFiles } from "./stored-files.ts";

export interface ResultFiles {
  readonly outputFileId: string | null;
  readonly errorFileId: string | null;
  readonly numSucceeded: number;
  readonly numFailed: number;
  readonly usage: BatchUsage;
}

/** Of a result as much as is summed up. */
const answeredLine = z.object({
  custom_id: z.string().nullable(),
  response: z.object({
    status_code: z.int(),
    body: z.object({
      usage: z
        .object({
          prompt_tokens: z.int(),
          completion_tokens: z.int(),
          prompt_tokens_details: z.object({ cached_tokens: z.int() }).nullish(),
        })
        .nullish(),
    }),
  }),
});

export interface ResultSources {
  readonly log: ResultLog;
  /** Of the input, where lines that have no result are to be told of; else null. */
  readonly input: AsyncIterable<NumberedLine> | null;
}

/** May be done again for the same batch: the files take the place of those made before. A file of no lines is none. */
export async function writeResultFiles(
  { batch, tenant, outputFileId, errorFileId }: BatchRecord,
  { log, input }: ResultSources,
  files: StoredFiles,
): Promise<ResultFiles> {
  const sums = { input_tokens: 0, cached_tokens: 0, output_tokens: 0 };
  const keep = async (fileId: string, suffix: string, lines: AsyncGenerator<Uint8Array>): Promise<string | null> => {
    const numBytes = await files.receive(fileId, lines);
    if (numBytes === 0) await files.discard(fileId);
    else {
      const filename = `${batch.id}_${suffix}.jsonl`;
      await files.publish(tenant, { id: fileId, numBytes, filename, purpose: "batch_output" });
    }
    return numBytes === 0 ? null : fileId;
  };
  const counts = { numSucceeded: 0, numFailed: 0 };

  async function* succeeded(): AsyncGenerator<Uint8Array> {
    for await (const { text, line } of distinctResults(log)) {
      if (line?.response.status_code !== 200) continue;
      counts.numSucceeded += 1;
      const { usage } = line.response.body;
      sums.input_tokens += usage?.prompt_tokens ?? 0;
      sums.cached_tokens += usage?.prompt_tokens_details?.cached_tokens ?? 0;
      sums.output_tokens += usage?.completion_tokens ?? 0;
      yield Buffer.from(`${text}\n`);
    }
  }

  async function* failed(): AsyncGenerator<Uint8Array> {
    for await (const { text, line } of distinctResults(log)) {
      if (line?.response.status_code === 200) continue;
      counts.numFailed += 1;
      yield Buffer.from(`${text}\n`);
    }
    if (input !== null) yield* expired(input, log.done);
  }

  const outputFile = await keep(outputFileId, "output", succeeded());
  const errorFile = await keep(errorFileId, "error", failed());
  return { outputFileId: outputFile, errorFileId: errorFile, ...counts, usage: toUsage(sums) };
}

/** `line` is null for one that has no response. A second result of a line, which only a lost lock brings about, is left out. */
async function* distinctResults(log: ResultLog) {
  const customIds = new Set<string>();
  for await (const { text } of readLines(log.read(), MAX_RESULT_BYTES)) {
    const line = answeredLine.safeParse(JSON.parse(text)).data ?? null;
    const customId = line?.custom_id ?? null;
    if (customId !== null && customIds.has(customId)) continue;
    if (customId !== null) customIds.add(customId);
    yield { text, line };
  }
}

async function* expired(input: AsyncIterable<NumberedLine>, done: DoneLines): AsyncGenerator<Uint8Array> {
  for await (const numbered of input) {
    const line = parseBatchLine(numbered);
    if (line.kind === "good" && !done.customIds.has(line.customId)) {
      yield Buffer.from(`${JSON.stringify(expiredLine(line))}\n`);
    }
  }
}

function toUsage(sums: {
  readonly input_tokens: number;
  readonly cached_tokens: number;
  readonly output_tokens: number;
}) {
  return {
    input_tokens: sums.input_tokens,
    input_tokens_details: { cached_tokens: sums.cached_tokens },
    output_tokens: sums.output_tokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: sums.input_tokens + sums.output_tokens,
  };
}
