/** The results of a batch under way, in one row, as they come: what a run that goes on begins with. */
import type { ResultFile } from "./result-file.ts";

export interface ResultLog extends ResultFile {
  /** All lines that are kept, those of earlier runs first; to be read when no more are appended. */
  read(): AsyncIterable<Uint8Array>;
}

export interface ResultLogs {
  /** To be continued, or new. One at a time for each batch. */
  open(name: string): Promise<ResultLog>;
  /** Does nothing where there is none. */
  delete(name: string): Promise<void>;
}
