/** Finds what installed packages announce to Fovea in their package.json, under `"fovea"`. */
import { readFile, readdir, realpath } from "node:fs/promises";
import { join, resolve } from "node:path";

/** More than any project has, so that a scan of a folder that is not node_modules ends. */
export const MAX_PACKAGES = 20_000;
/** Files open at once. */
const MAX_OPEN = 64;

export interface Announcement {
  readonly packageName: string;
  /** The package's real folder. */
  readonly folder: string;
  /** Not validated. */
  readonly value: unknown;
}

/** More packages than `MAX_PACKAGES`. */
export class TooManyPackages extends Error {
  override readonly name = "TooManyPackages";
  readonly numPackages: number;
  readonly folder: string;

  constructor(folder: string, numPackages: number) {
    super(`${folder} and the folders before it contain ${numPackages} packages; the limit is ${MAX_PACKAGES}`);
    this.folder = folder;
    this.numPackages = numPackages;
  }
}

/**
 * The field of `"fovea"` of every package that has it, in the node_modules of each folder: packages in alphabetical
 * order. A package that is reached twice counts once. Throws TooManyPackages.
 */
export async function findAnnouncements(folders: readonly string[], field: string): Promise<Announcement[]> {
  const packageFolders: string[] = [];
  for (const folder of new Set(folders.map((path) => resolve(path)))) {
    packageFolders.push(...(await listPackages(join(folder, "node_modules"))));
    if (packageFolders.length > MAX_PACKAGES) throw new TooManyPackages(folder, packageFolders.length);
  }
  const seen = new Set<string>();
  const found: Announcement[] = [];
  for (let start = 0; start < packageFolders.length; start += MAX_OPEN) {
    const batch = packageFolders.slice(start, start + MAX_OPEN);
    for (const announced of await Promise.all(batch.map((folder) => readAnnouncement(folder, field)))) {
      if (announced === null || seen.has(announced.folder)) continue;
      seen.add(announced.folder);
      found.push(announced);
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

/** Null for a folder that announces nothing or is not a package. */
async function readAnnouncement(packageFolder: string, field: string): Promise<Announcement | null> {
  const text = await readFile(join(packageFolder, "package.json"), "utf8").catch(() => "");
  // Excludes nearly all packages without parsing.
  if (!text.includes(`"${field}"`)) return null;
  const manifest = parseManifest(text);
  const value = manifest.fovea?.[field];
  if (value === undefined) return null;
  return { packageName: manifest.name ?? packageFolder, folder: await realpath(packageFolder), value };
}

interface Manifest {
  readonly name?: string;
  readonly fovea?: Readonly<Record<string, unknown>>;
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
