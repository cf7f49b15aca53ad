/** A batch as stored and shown: OpenAI's batch object, and the fields that only its worker needs. */
import { z } from "zod";

import { batchUrls } from "./batch-line.ts";

export const finalStatuses = ["failed", "completed", "expired", "cancelled"] as const;
const statuses = ["validating", "in_progress", "finalizing", "cancelling", ...finalStatuses] as const;
export type BatchStatus = (typeof statuses)[number];
export type FinalStatus = (typeof finalStatuses)[number];
/** `leftover`: bytes and results that no record names. */
export type RemovedKind = "file" | "batch" | "leftover";

/** Unix time in seconds; null until it happens. */
const timestamp = z.int().nullable();

const batchError = z.object({
  code: z.string(),
  message: z.string(),
  /** Line of the input file, from 1. */
  line: z.int().nullable(),
  param: z.string().nullable(),
});
export type BatchError = z.output<typeof batchError>;

const usage = z.object({
  input_tokens: z.int(),
  input_tokens_details: z.object({ cached_tokens: z.int() }),
  output_tokens: z.int(),
  output_tokens_details: z.object({ reasoning_tokens: z.int() }),
  total_tokens: z.int(),
});
export type BatchUsage = z.output<typeof usage>;

/** https://platform.openai.com/docs/api-reference/batch/object */
const batchObject = z.object({
  id: z.string(),
  object: z.literal("batch"),
  endpoint: z.enum(batchUrls),
  model: z.string(),
  errors: z.object({ object: z.literal("list"), data: z.array(batchError) }).nullable(),
  input_file_id: z.string(),
  completion_window: z.literal("24h"),
  status: z.enum(statuses),
  output_file_id: z.string().nullable(),
  error_file_id: z.string().nullable(),
  created_at: z.int(),
  in_progress_at: timestamp,
  expires_at: z.int(),
  finalizing_at: timestamp,
  completed_at: timestamp,
  failed_at: timestamp,
  expired_at: timestamp,
  cancelling_at: timestamp,
  cancelled_at: timestamp,
  request_counts: z.object({ total: z.int(), completed: z.int(), failed: z.int() }),
  usage: usage.nullable(),
  metadata: z.record(z.string(), z.string()).nullable(),
});
export type BatchObject = z.output<typeof batchObject>;

export const batchRecord = z.object({
  batch: batchObject,
  /** The tenant of the lines. */
  tenant: z.string(),
  /** Chosen when the batch is created, so that results written again after a crash replace the first ones. */
  outputFileId: z.string(),
  errorFileId: z.string(),
  /** Lifetime of the result files, from their creation; null leaves it to the settings. */
  outputExpiresAfterSeconds: z.int().nullable().default(null),
  /**
   * How the batch ends even if lines have no answer; null while it runs. `completed` is never set in advance, because
   * only the stored results show that a batch is complete.
   */
  ending: z
    .enum(finalStatuses)
    .nullable()
    // Records of earlier versions may contain it.
    .transform((ending) => (ending === "completed" ? null : ending)),
  /** The server that last started to answer lines; null once it has released the batch cleanly. */
  startedBy: z.string().nullable().default(null),
  /** How often a server ended while it answered lines, since a line was last stored. */
  numFruitlessStarts: z.int(),
  /** How often an attempt failed for a reason other than the store. */
  numFailedAttempts: z.int().default(0),
});
export type BatchRecord = z.output<typeof batchRecord>;

export function isFinal(status: BatchStatus): status is FinalStatus {
  return (finalStatuses as readonly string[]).includes(status);
}
