/** Folders with programs for the tests, in the user's cache. Each is filled once and never changed. */
import { execFile } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { performance } from "node:perf_hooks";
import { promisify } from "node:util";

const cacheFolder = join(
  process.env.FOVEA_TEST_CACHE ?? join(homedir(), ".cache", "fovea-test"),
  `${process.platform}-${process.arch}`,
);

/** A slow connection needs minutes for the 70 MB of Chromium, but a command that hangs must end. */
const commandTimeoutMs = 15 * 60_000;
const maxOutputBytes = 16 * 1024 ** 2;
/** The end of a package manager's output names the cause. */
const maxErrorLines = 4;

export interface FilledFolder {
  /** Names the content, including its version. */
  readonly name: string;
  /** What is downloaded, from where, and its size. */
  readonly description: string;
  /** Writes the content into `folder`, which becomes `finalFolder` afterwards. */
  readonly fill: (folder: string, finalFolder: string) => Promise<void>;
}

/** The path of a folder in the cache, which may not exist. */
export function pathInCache(name: string): string {
  return join(cacheFolder, name);
}

/**
 * Returns the folder's path, and fills the folder first if it does not exist. Two runs may do this at once: the first
 * to finish wins. A half-filled folder never gets its name.
 */
export async function ensureFolder(
  { name, description, fill }: FilledFolder,
  parent: string = cacheFolder,
): Promise<string> {
  const finalFolder = join(parent, name);
  if (existsSync(finalFolder)) return finalFolder;
  await mkdir(parent, { recursive: true });
  const startedAt = performance.now();
  say(`Fetching ${description} into ${parent}`);
  const folder = await mkdtemp(`${finalFolder}.`);
  const removeAtExit = (): void => rmSync(folder, { recursive: true, force: true });
  process.once("exit", removeAtExit);
  try {
    await fill(folder, finalFolder);
    // mkdtemp gives access only to the owner.
    await chmod(folder, 0o755);
    await rename(folder, finalFolder);
    say(`Fetched ${description} in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  } catch (error) {
    if (!existsSync(finalFolder)) throw error;
  } finally {
    process.off("exit", removeAtExit);
    await rm(folder, { recursive: true, force: true });
  }
  return finalFolder;
}

/** Standard output belongs to the test reporter. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Runs a command and returns its standard output. Throws an error with the end of its standard error. */
export async function run(
  command: string,
  args: readonly string[],
  { cwd, env }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, timeout: commandTimeoutMs, maxBuffer: maxOutputBytes };
  try {
    return (await promisify(execFile)(command, args, options)).stdout;
  } catch (cause) {
    const { stderr, message } = cause as Error & { readonly stderr?: string };
    const lines = (stderr?.trim() || message).split("\n").slice(-maxErrorLines);
    throw new Error(`${basename(command)} failed: ${lines.join("\n")}`, { cause });
  }
}

/** Writes an executable shell script that runs `program` with additional variables in its environment. */
export async function writeLauncher(
  file: string,
  program: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<void> {
  const exports = Object.entries(environment).map(([name, value]) => `export ${name}=${quote(value)}\n`);
  await writeFile(file, `#!/bin/sh\n${exports.join("")}exec ${program.map(quote).join(" ")} "$@"\n`, { mode: 0o755 });
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
