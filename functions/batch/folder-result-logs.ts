/** Result logs as files of a local folder: a line is stored as soon as it is appended. */
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";

import type { Logger } from "../logger.ts";
import { makeFolder } from "../storage/make-folder.ts";
import { StorageError } from "../storage/object-store.ts";
import { openResultFile } from "./result-file.ts";
import { isSuccess } from "./result-line.ts";
import type { ResultLog, ResultLogs } from "./result-log.ts";

export function createFolderResultLogs(folder: string, logger: Logger): ResultLogs {
  const pathOf = (name: string): string => join(folder, `${name}.jsonl`);

  async function open(name: string): Promise<ResultLog> {
    const path = pathOf(name);
    await makeFolder(folder, 0o700);
    let numDamaged = 0;
    const file = await openResultFile(path, {
      shown: `The log of results ${path}`,
      onDamagedLine: () => (numDamaged += 1),
    });
    if (numDamaged > 0)
      logger.warn("A log of results has damaged lines; they are answered again.", { path, numDamaged });
    const { done } = file;
    const numStored = { numSucceeded: done.numSucceeded, numFailed: done.customIds.size - done.numSucceeded };
    return {
      done,
      numStored,
      async append(line) {
        await file.append(line).catch(fail("Writing results"));
        numStored[isSuccess(line) ? "numSucceeded" : "numFailed"] += 1;
      },
      flush: () => file.sync().catch(fail("Writing results")),
      read: () => readFile(path),
      close: () => file.close().catch(() => {}),
    };
  }

  return {
    open: (name) => open(name).catch(fail("Opening the results")),
    async delete(name) {
      await rm(pathOf(name), { force: true }).catch(fail("Deleting results"));
    },
  };
}

/** A missing log has no lines: the batch then finds that they are missing. */
async function* readFile(path: string): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT") throw new StorageError("Reading results", cause);
  }
}

function fail(action: string): (cause: unknown) => never {
  return (cause) => {
    throw new StorageError(action, cause);
  };
}
