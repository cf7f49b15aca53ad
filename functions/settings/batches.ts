/** Settings of files and batches. */
import { MAX_SEQUENCES } from "./engine.ts";
import { setting } from "./setting.ts";
import { batchStore, bytes, GIBIBYTE, integer, seconds, secondsOrNever } from "./values.ts";

export const batchSettings = {
  /** Null if it depends on the user's home. */
  store: setting(
    "BATCH_STORE",
    batchStore(),
    "Where files and batches are stored: a folder, s3://bucket/prefix, or none to turn batches off; default: fovea/batches in $XDG_DATA_HOME or ~/.local/share.",
  ),
  /** Null means half of the engine's. */
  maxNumSequences: setting(
    "BATCH_MAX_NUM_SEQS",
    integer(1, MAX_SEQUENCES, "sequences"),
    "Largest number of batch sequences that run together. Requests take precedence. Default: half of MAX_NUM_SEQS.",
  ),
  maxFileBytes: setting("BATCH_MAX_FILE_BYTES", bytes(1024, 64 * GIBIBYTE), "Largest input file in bytes.", {
    default: "200MiB",
  }),
  maxStoreBytes: setting(
    "BATCH_MAX_STORE_BYTES",
    bytes(1024, 1024 * 1024 * GIBIBYTE),
    "Largest size of all files together. Uploads beyond it are rejected; results of batches are not.",
    { default: "16GiB" },
  ),
  maxNumLines: setting("BATCH_MAX_LINES", integer(1, 10_000_000, "lines"), "Largest number of requests per batch.", {
    default: 50_000,
  }),
  /** Null means until clients delete files, and forever for batches. */
  retentionMs: setting(
    "BATCH_RETENTION_SECONDS",
    secondsOrNever(3600, 10 * 365 * 86_400),
    "How long files are kept after they are created, and batches after they end. Earlier where a client sets expires_after. 0 keeps files until they are deleted.",
    { default: 30 * 86_400 },
  ),
  /** Time limit of one call for a waiting request. */
  storeTimeoutMs: setting(
    "BATCH_STORE_TIMEOUT_SECONDS",
    seconds(0.1, 300),
    "Timeout of one S3 call of a request for files or batches; after it the answer is 503. Parts of files have 4 times as long, work on batches 6 times.",
    { default: 5 },
  ),
};
