/** Python and pip, with which the tests download Redis and the S3 server: the system's, or Debian's in the cache. */
import { existsSync } from "node:fs";
import { readdir, realpath } from "node:fs/promises";
import { join } from "node:path";

import { run } from "./cache-folder.ts";
import { ensureDebianPackages, findDebianPackages, isAptAvailable } from "./debian-packages.ts";
import type { DebianPackages } from "./debian-packages.ts";

/** moto's minimum. */
const oldestMinorVersion = 10;

const debianPython: DebianPackages = {
  packages: ["python3", "python3-pip-whl"],
  programs: ["python3"],
  megabytes: 13,
};

// Redis and the S3 server request it at the same time.
let python: Promise<string> | undefined;
let pipArguments: Promise<readonly string[]> | undefined;

/**
 * Returns the absolute path of a Python of version 3.10 or newer. Throws if there is none and Debian's cannot be
 * downloaded.
 */
export function ensurePython(): Promise<string> {
  return (python ??= findOrFetchPython());
}

async function findOrFetchPython(): Promise<string> {
  const known = (await inspect("python3")) ?? (await inspectLauncher(await findDebianPackages(debianPython)));
  if (known !== null) return known;
  const fetched = isAptAvailable() ? await inspectLauncher(await ensureDebianPackages(debianPython)) : null;
  if (fetched !== null) return fetched;
  throw new Error(`there is no Python 3.${oldestMinorVersion} or newer.`);
}

async function inspectLauncher(folder: string | null): Promise<string | null> {
  return folder === null ? null : inspect(join(folder, "bin", "python3"));
}

/** Returns null for a Python that is missing, too old, or reduced to a part of its standard library. */
async function inspect(command: string): Promise<string | null> {
  const program = "import sys, ssl, sqlite3, json; print(json.dumps([sys.executable, sys.version_info.minor]))";
  try {
    const [executable, minorVersion] = JSON.parse(await run(command, ["-c", program])) as [string, number];
    if (minorVersion < oldestMinorVersion) return null;
    // A launcher sets the library path; the executable behind it does not. The real path contains the version.
    return command.includes("/") ? command : await realpath(executable);
  } catch {
    return null;
  }
}

/**
 * Installs the wheels of a pinned requirements file with hashes into `folder`, from the user's own index.
 *
 * @param options More options for pip.
 */
export async function installWheels(
  requirements: string,
  folder: string,
  options: readonly string[] = [],
): Promise<void> {
  const interpreter = await ensurePython();
  const pip = await (pipArguments ??= findPip(interpreter));
  const always = ["--quiet", "--disable-pip-version-check", "--no-input", "--only-binary=:all:", "--require-hashes"];
  const args = ["install", ...always, "--requirement", requirements, "--target", folder, ...options];
  // Without user settings that would forbid a target folder.
  await run(interpreter, [...pip, ...args], { env: { PIP_REQUIRE_VIRTUALENV: "false", PIP_USER: "false" } });
}

/** Returns the arguments with which the interpreter runs pip. */
async function findPip(interpreter: string): Promise<readonly string[]> {
  const hasPip = await run(interpreter, ["-m", "pip", "--version"]).then(
    () => true,
    () => false,
  );
  if (hasPip) return ["-m", "pip"];
  // pip runs from within its wheel.
  const folder = isAptAvailable() ? join(await ensureDebianPackages(debianPython), "usr/share/python-wheels") : null;
  const wheels = folder !== null && existsSync(folder) ? await readdir(folder) : [];
  const wheel = wheels.find((name) => name.startsWith("pip-"));
  if (folder === null || wheel === undefined) throw new Error(`${interpreter} has no pip.`);
  return [join(folder, wheel, "pip")];
}
