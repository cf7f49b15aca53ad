/** A Python environment of a peer's own, created once under the bench's folder. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { reportProgress } from "../measure.ts";
import { benchFolder } from "../settings.ts";

export const run = promisify(execFile);
export const peersFolder = fileURLToPath(new URL("../peers/", import.meta.url));

export interface PythonPeer {
  readonly title: string;
  /** Folder below the bench's, and the beginning of the name of the file of requirements. */
  readonly name: string;
  /** Packages that come with the others, are not needed, and may not match them. */
  readonly without?: readonly string[];
}

/** Creates the environment if it is missing: gigabytes, minutes. @returns The path of its programs. */
export async function installPythonPeer({ title, name, without = [] }: PythonPeer): Promise<string> {
  const environment = join(benchFolder, name);
  const programs = join(environment, "bin");
  const installed = join(environment, "installed");
  if (existsSync(installed)) return programs;
  reportProgress(`installing ${title} into ${environment} ...`);
  const pip = join(programs, "pip");
  await run("python3", ["-m", "venv", environment]);
  await run(pip, ["install", "--quiet", "-r", join(peersFolder, `${name}-requirements.txt`)]);
  if (without.length > 0) await run(pip, ["uninstall", "--quiet", "--yes", ...without]);
  await writeFile(installed, "");
  return programs;
}
