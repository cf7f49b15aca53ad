/** The CUDA provider and NVIDIA's libraries, from the wheels that container/cuda-requirements.txt pins by hash. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

export interface WheelLibrary {
  /** Name of the Python package. */
  readonly wheel: string;
  readonly path: string;
}

const platforms = ["manylinux_2_28", "manylinux_2_27", "manylinux2014", "manylinux2010"].map(
  (name) => `${name}_x86_64`,
);

/**
 * Downloads the wheels that the cache lacks, unpacks them there, and returns their shared libraries.
 *
 * @param names Of those wanted, as the requirements spell them.
 * @throws Error where pip is not there, or a download or hash fails.
 */
export function fetchLibraries(requirements: string, cache: string, names: readonly string[]): WheelLibrary[] {
  return names.flatMap((name) => {
    const pinned = requirementOf(readFileSync(requirements, "utf8"), name);
    const folder = join(cache, pinned.version === null ? name : `${name}-${pinned.version}`);
    if (!existsSync(folder)) fetchWheel(pinned.text, cache, folder);
    return findLibraries(folder).map((path) => ({ wheel: name, path }));
  });
}

/** The lines of one package, its hash included. */
function requirementOf(text: string, name: string): { readonly text: string; readonly version: string | null } {
  const logicalLines = text.replaceAll(/\\\n\s*/g, " ").split("\n");
  const line = logicalLines.find((candidate) => candidate.startsWith(`${name}==`));
  if (line === undefined) throw new Error(`The requirements do not pin ${name}.`);
  return { text: line, version: /==(\S+)/.exec(line)?.[1] ?? null };
}

function fetchWheel(requirement: string, cache: string, folder: string): void {
  const unpacking = `${folder}.${process.pid}`;
  mkdirSync(unpacking, { recursive: true });
  try {
    const file = join(unpacking, "requirement.txt");
    writeFileSync(file, `${requirement}\n`);
    const selection = ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp"];
    const options = ["--disable-pip-version-check", "--require-hashes", "--no-deps", "--no-cache-dir", ...selection];
    const platformOptions = platforms.flatMap((name) => ["--platform", name]);
    runPython(["-m", "pip", "download", ...options, ...platformOptions, "--dest", unpacking, "--requirement", file]);
    const wheel = readdirSync(unpacking).find((name) => name.endsWith(".whl"));
    if (wheel === undefined) throw new Error(`pip downloaded no wheel for ${requirement}.`);
    runPython(["-m", "zipfile", "-e", join(unpacking, wheel), unpacking]);
    rmSync(join(unpacking, wheel));
    mkdirSync(cache, { recursive: true });
    renameSync(unpacking, folder);
  } finally {
    rmSync(unpacking, { recursive: true, force: true });
  }
}

function runPython(args: readonly string[]): void {
  const { status, error } = spawnSync("python3", args, { stdio: ["ignore", "inherit", "inherit"] });
  if (error !== undefined)
    throw new Error("The wheels are downloaded with python3 and pip, which are not here.", { cause: error });
  if (status !== 0) throw new Error(`python3 ${args.slice(0, 3).join(" ")} ended with ${status}.`);
}

/** Without the alternatives that NVIDIA ships beside some libraries, and without the replacement of the system's BLAS. */
function findLibraries(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((path) => /\.so(\.\d+)*$/.test(path) && !/\.alt\.|libnvblas/.test(basename(path)))
    .map((path) => join(folder, path))
    .sort();
}
