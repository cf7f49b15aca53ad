/** The S3 server of the tests: moto, which runs on Python. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { ensureFolder, pathInCache, writeLauncher } from "./cache-folder.ts";
import { locate } from "./locate.ts";
import { ensurePython, installWheels } from "./python.ts";

const requirements = fileURLToPath(new URL("moto-requirements.txt", import.meta.url));

const pythonPathFile = "python-path";

/**
 * Returns the path of `moto_server`.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureMotoServer(): Promise<string> {
  return locate({
    name: "moto, an S3 server",
    variable: "MOTO_SERVER",
    fetch: fetchMoto,
    system: ["moto_server"],
    debianPackages: "python3 python3-pip",
  });
}

async function fetchMoto(): Promise<string> {
  const hash = createHash("sha256").update(await readFile(requirements));
  const name = `moto-${hash.digest("hex").slice(0, 16)}`;
  await removeWithoutPython(pathInCache(name));
  const folder = await ensureFolder({
    name,
    description: "moto, an S3 server (31 MB, with pip)",
    fill: async (folder, finalFolder) => {
      const python = await ensurePython();
      await installWheels(requirements, join(folder, "packages"));
      const packages = join(finalFolder, "packages");
      await writeLauncher(join(folder, "moto_server"), [python, join(packages, "bin", "moto_server")], {
        PYTHONPATH: packages,
      });
      await writeFile(join(folder, pythonPathFile), python);
    },
  });
  return join(folder, "moto_server");
}

/** Some wheels are for one version of Python only: if it is gone, they are installed again for another. */
async function removeWithoutPython(folder: string): Promise<void> {
  const python = await readFile(join(folder, pythonPathFile), "utf8").catch(() => null);
  if (python !== null && !existsSync(python)) await rm(folder, { recursive: true, force: true });
}
