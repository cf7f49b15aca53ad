/** Folders with pinned Python packages, and programs that use them. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { ensureFolder, pathInCache, writeLauncher } from "./cache-folder.ts";
import { ensurePython, installWheels } from "./python.ts";

const pythonPathFile = "python-path";

export interface PythonPackages {
  /** Begins the name of the folder; a hash of the requirements follows. */
  readonly name: string;
  readonly description: string;
  /** A requirements file with hashes. */
  readonly requirements: string;
  /** More options for pip. */
  readonly options?: readonly string[];
  /** Name of the launcher in the folder. */
  readonly launcher: string;
  /** Name of the script among the packages that the launcher runs; null for Python itself. */
  readonly script: string | null;
}

/** Returns the absolute path of the launcher, which finds the packages. Installs them first if they are missing. */
export async function ensurePythonPackages(packages: PythonPackages): Promise<string> {
  const { name, description, requirements, options = [], launcher, script } = packages;
  const hash = createHash("sha256").update(await readFile(requirements));
  const folderName = `${name}-${hash.digest("hex").slice(0, 16)}`;
  await removeWithoutPython(pathInCache(folderName));
  const folder = await ensureFolder({
    name: folderName,
    description,
    fill: async (folder, finalFolder) => {
      const python = await ensurePython();
      await installWheels(requirements, join(folder, "packages"), options);
      const installed = join(finalFolder, "packages");
      const program = script === null ? [python] : [python, join(installed, "bin", script)];
      await writeLauncher(join(folder, launcher), program, { PYTHONPATH: installed });
      await writeFile(join(folder, pythonPathFile), python);
    },
  });
  return join(folder, launcher);
}

/** Some wheels are for one version of Python only: if it is gone, they are installed again for another. */
async function removeWithoutPython(folder: string): Promise<void> {
  const python = await readFile(join(folder, pythonPathFile), "utf8").catch(() => null);
  if (python !== null && !existsSync(python)) await rm(folder, { recursive: true, force: true });
}
