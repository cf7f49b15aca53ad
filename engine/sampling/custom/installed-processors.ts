/** Finds the logits processors that installed packages announce in their package.json. */
import { readFile, readdir, realpath } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { z } from "zod";

import type { LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";

/** More than any project has, so that a scan of a folder that is not node_modules ends. */
const MAX_PACKAGES = 20_000;
/** Files open at once. */
const MAX_OPEN = 64;

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
  const packageFolders: string[] = [];
  for (const folder of new Set([...folders.map((path) => resolve(path)), resolve(".")])) {
    packageFolders.push(...(await listPackages(join(folder, "node_modules"))));
    if (packageFolders.length > MAX_PACKAGES) {
      throw new EngineError(
        "invalid_logits_processor",
        `${folder} and the folders before it contain ${packageFolders.length} packages to search for logits processors; the limit is ${MAX_PACKAGES}.`,
      );
    }
  }
  const seen = new Set<string>();
  const found: LogitsProcessorReference[] = [];
  for (let start = 0; start < packageFolders.length; start += MAX_OPEN) {
    const announced = await Promise.all(packageFolders.slice(start, start + MAX_OPEN).map(readAnnouncement));
    for (const processors of announced) {
      if (processors === null || seen.has(processors.realFolder)) continue;
      seen.add(processors.realFolder);
      found.push(...processors.references);
    }
  }
  return found;
}

async function listPackages(nodeModules: string): Promise<string[]> {
  const names = await readSortedNames(nodeModules);
  const folders = await Promise.all(
    names
      .filter((name) => !name.startsWith("."))
      .map(async (name) => {
        const folder = join(nodeModules, name);
        return name.startsWith("@") ? (await readSortedNames(folder)).map((inScope) => join(folder, inScope)) : folder;
      }),
  );
  return folders.flat();
}

async function readSortedNames(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).toSorted((first, second) => (first < second ? -1 : 1));
}

interface AnnouncedProcessors {
  readonly realFolder: string;
  readonly references: readonly LogitsProcessorReference[];
}

/** Null for a folder that announces nothing or is not a package. */
async function readAnnouncement(packageFolder: string): Promise<AnnouncedProcessors | null> {
  const text = await readFile(join(packageFolder, "package.json"), "utf8").catch(() => "");
  // Excludes nearly all packages without parsing.
  if (!text.includes('"logitsProcessors"')) return null;
  const manifest = parseManifest(text);
  if (manifest.fovea?.logitsProcessors === undefined) return null;
  const packageName = manifest.name ?? packageFolder;
  const parsed = announcement.safeParse(manifest.fovea.logitsProcessors);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    const field = ["fovea.logitsProcessors", ...path].join(".");
    throw new EngineError("invalid_logits_processor", `package.json of ${packageName}: ${field} ${message}.`);
  }
  const realFolder = await realpath(packageFolder);
  const references = Object.entries(parsed.data).map(([name, className]) => {
    const colon = className.lastIndexOf(":");
    const file = pathToFileURL(join(realFolder, className.slice(0, colon))).href;
    return { name: `${name} of ${packageName}`, className: file + className.slice(colon), options: {} };
  });
  return { realFolder, references };
}

interface Manifest {
  readonly name?: string;
  readonly fovea?: { readonly logitsProcessors?: unknown };
}

/** A package.json that does not parse is ignored. */
function parseManifest(text: string): Manifest {
  try {
    const manifest: unknown = JSON.parse(text);
    return typeof manifest === "object" && manifest !== null ? manifest : {};
  } catch {
    return {};
  }
}
