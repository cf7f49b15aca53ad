/** Finds the logits processors that installed packages announce in their package.json. */
import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { z } from "zod";

import type { LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { findAnnouncements, MAX_PACKAGES, TooManyPackages } from "../../installed-packages.ts";
import type { Announcement } from "../../installed-packages.ts";

const announcement = z.record(
  z.string(),
  z.string('must be "./file:Class"').regex(/^\.\/[^:]+:[^:]+$/, 'must be "./file:Class"; got another string'),
  'must be an object such as {"name": "./file:Class"}',
);

/**
 * Finds processors that packages announce under `"fovea": { "logitsProcessors": { "name": "./file.js:Class" } }`, in
 * the node_modules of each of `folders` and of the working directory: packages in alphabetical order, their processors
 * in the announced order. A package that is reached twice counts once. Emits a warning for each of `folders` that cannot
 * be read: nothing would be found there.
 *
 * @throws EngineError `invalid_logits_processor` with the package's name for an invalid announcement.
 */
export async function findInstalledProcessors(folders: readonly string[]): Promise<LogitsProcessorReference[]> {
  await warnOfUnreadable(folders);
  const announced = await findAnnouncements([...folders, "."], "logitsProcessors").catch((error: unknown) => {
    if (!(error instanceof TooManyPackages)) throw error;
    throw new EngineError(
      "invalid_logits_processor",
      `${error.folder} and the folders before it contain ${error.numPackages} packages to search for logits processors; the limit is ${MAX_PACKAGES}.`,
    );
  });
  return announced.flatMap(referencesOf);
}

async function warnOfUnreadable(folders: readonly string[]): Promise<void> {
  for (const folder of new Set(folders.map((path) => resolve(path)))) {
    await readdir(folder).catch((error: unknown) =>
      process.emitWarning(`The folder ${folder} of the logits processor path cannot be read: ${describeError(error)}.`),
    );
  }
}

function referencesOf({ packageName, folder, value }: Announcement): LogitsProcessorReference[] {
  const parsed = announcement.safeParse(value);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    const field = ["fovea.logitsProcessors", ...path].join(".");
    throw new EngineError("invalid_logits_processor", `package.json of ${packageName}: ${field} ${message}.`);
  }
  return Object.entries(parsed.data).map(([name, className]) => {
    const colon = className.lastIndexOf(":");
    const file = pathToFileURL(join(folder, className.slice(0, colon))).href;
    return { name: `${name} of ${packageName}`, className: file + className.slice(colon), options: {} };
  });
}
