/** Decides which of several programs on a machine the tests use. */
import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";

import { say } from "./cache-folder.ts";
import { MissingProgramError } from "./missing-program.ts";

export interface Program {
  readonly name: string;
  /** The environment variable with the path of the user's own program. */
  readonly variable: string;
  /** Downloads the pinned version and returns its path; null if no package has one for this platform. */
  readonly fetch: (() => Promise<string>) | null;
  /** Commands or absolute paths of programs that the system may have. */
  readonly system: readonly string[];
  /** Debian's packages with the program. */
  readonly debianPackages: string;
}

/**
 * Returns the absolute path of the program: the user's own, otherwise the pinned one, which makes test runs equal on
 * all machines, otherwise the system's.
 *
 * @throws MissingProgramError if there is none.
 */
export async function locate({ name, variable, fetch, system, debianPackages }: Program): Promise<string> {
  const named = process.env[variable];
  const remedy = `apt-get install -y ${debianPackages} (as root), or ${variable}=/path/to/it npm test`;
  if (named !== undefined) {
    const path = findProgram(named);
    if (path !== null) return path;
    throw new MissingProgramError(name, `${variable} names ${named}, which does not exist.`, `unset ${variable}`);
  }
  let reason = `no package has it for ${process.platform} on ${process.arch}, and the system has none.`;
  if (fetch !== null) {
    try {
      return await fetch();
    } catch (error) {
      reason = `it could not be fetched: ${(error as Error).message.trim()}`;
    }
  }
  const ofSystem = system.map(findProgram).find((path) => path !== null);
  if (ofSystem === undefined) throw new MissingProgramError(name, reason, remedy);
  if (fetch !== null) say(`${name}: ${reason}\nThe tests use ${ofSystem} instead.`);
  return ofSystem;
}

/** Returns the absolute path of a command on the PATH, or of a path that exists. */
export function findProgram(command: string): string | null {
  if (command.includes("/")) return existsSync(command) ? resolve(command) : null;
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => join(folder, command)).find(isExecutable) ?? null;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
