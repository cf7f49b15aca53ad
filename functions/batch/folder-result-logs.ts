/** Result logs as files of a local folder: a line is kept as soon as it is appended. */
import { createReadStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { StorageError } from "../storage/object-store.ts";
import { openResultFile } from "./result-file.ts";
import type { ResultLogs } from "./result-log.ts";

export function createFolderResultLogs(folder: string): ResultLogs {
  const pathOf = (name: string): string => join(folder, `${name}.jsonl`);
  return {
    async open(name) {
      try {
        await mkdir(folder, { recursive: true, mode: 0o700 });
        const file = await openResultFile(pathOf(name), `The log of results ${pathOf(name)}`);
        return {
          ...file,
          append: (line) => file.append(line).catch(fail("Writing results")),
          read: () => createReadStream(pathOf(name)),
        };
      } catch (error) {
        return fail("Opening the results")(error);
      }
    },
    async delete(name) {
      await rm(pathOf(name), { force: true }).catch(fail("Deleting results"));
    },
  };
}

function fail(action: string): (cause: unknown) => never {
  return (cause) => {
    throw new StorageError(action, cause);
  };
}
