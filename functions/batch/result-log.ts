/** The results of an unfinished batch, in the order of completion: the next attempt starts with them. */
import type { DoneLines, ResultFile } from "./result-file.ts";

export interface ResultLog extends ResultFile {
  /** The lines that were stored when the log was opened. */
  readonly done: DoneLines;
  /** Number of results stored now, including those of earlier attempts. */
  readonly numStored: Readonly<StoredResults>;
  /** Resolves when all appended lines are stored permanently. Rejects if they cannot be. */
  flush(): Promise<void>;
  /** All stored lines, those of earlier attempts first. Call it after `flush`. Damaged lines may be among them. */
  read(): AsyncIterable<Uint8Array>;
  /** Makes a last attempt to store the rest, and frees the log's resources. Never rejects. */
  close(): Promise<void>;
}

export interface StoredResults {
  /** With status 200. */
  numSucceeded: number;
  numFailed: number;
}

export interface ResultLogs {
  /**
   * Opens a log to resume it, or creates it. Only one at a time per batch. Damaged lines are left out of `done`, so
   * that they are answered again.
   *
   * @param signal Once it is aborted, the log stops retrying.
   */
  open(name: string, signal: AbortSignal): Promise<ResultLog>;
  /** Does nothing if there is no log. */
  delete(name: string): Promise<void>;
}
