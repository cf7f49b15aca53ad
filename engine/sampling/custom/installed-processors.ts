/** Finds the logits processors that installed packages announce in their package.json. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { z } from "zod";

import type { LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { findAnnouncements, MAX_PACKAGES, TooManyPackages } from "../../installed-packages.ts";
import type { Announcement } from "../../installed-packages.ts";

const announcement = z.record(
  z.string(),
  z.string().regex(/^\.\/[^:]+:[^:]+$/, 'must be "./file:Class"; got another string'),
);

/**
 * Finds processors that packages announce under `"fovea": { "logitsProcessors": { "name": "./file.js:Class" } }`, in
 * the node_modules of each of `folders` and of the working directory: packages in alphabetical order, their processors
 * in the announced order. A package that is reached twice counts once.
 *
 * @throws EngineError `invalid_logits_processor` with the package's name for an invalid announcement.
 */
export async function findInstalledProcessors(folders: readonly string[]): Promise<LogitsProcessorReference[]> {
  const announced = await findAnnouncements([...folders, "."], "logitsProcessors").catch((error: unknown) => {
    if (!(error instanceof TooManyPackages)) throw error;
    throw new EngineError(
      "invalid_logits_processor",
      `${error.folder} and the folders before it contain ${error.numPackages} packages to search for logits processors; the limit is ${MAX_PACKAGES}.`,
    );
  });
  return announced.flatMap(referencesOf);
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
