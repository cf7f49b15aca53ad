/** The results of an unfinished batch in the order in which they come: the next attempt begins with them. */
import type { DoneLines, ResultFile } from "./result-file.ts";

export interface ResultLog extends ResultFile {
  /** The lines that were stored when the log was opened. */
  readonly done: DoneLines;
  /** How many results are stored at this moment, those of earlier attempts included. */
  readonly numStored: Readonly<StoredResults>;
  /** Resolves when all appended lines are stored for good. Rejects where they cannot be. */
  flush(): Promise<void>;
  /** All stored lines, those of earlier attempts first. To be called after `flush`. Damaged lines may be among them. */
  read(): AsyncIterable<Uint8Array>;
  /** Tries once more to store what is left, and frees what the log holds. Never rejects. */
  close(): Promise<void>;
}

export interface StoredResults {
  /** With status 200. */
  numSucceeded: number;
  numFailed: number;
}

export interface ResultLogs {
  /**
   * Opens a log to continue it, or creates it. One at a time for each batch. Damaged lines are left out of `done`, so
   * that they are answered again.
   *
   * @param signal Once it is aborted, the log stops retrying.
   */
  open(name: string, signal: AbortSignal): Promise<ResultLog>;
  /** Does nothing where there is no log. */
  delete(name: string): Promise<void>;
}
