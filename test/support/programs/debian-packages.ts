/**
 * Programs from Debian's or Ubuntu's packages, without root: apt downloads a package and its missing dependencies from
 * the user's own sources and verifies them. They are unpacked into the cache and not installed.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";

import { ensureFolder, pathInCache, run, writeLauncher } from "./cache-folder.ts";
import { findProgram } from "./locate.ts";

export interface DebianPackages {
  /** The first one names the folder. */
  readonly packages: readonly [string, ...string[]];
  /** Programs below `usr/bin` that get launchers in `bin`. */
  readonly programs: readonly string[];
  /** Without package lists, which are 10 MB more. */
  readonly megabytes: number;
}

export function isAptAvailable(): boolean {
  return findProgram("apt-get") !== null && findProgram("dpkg-deb") !== null;
}

/** Returns the folder of the packages if they have been unpacked before. */
export async function findDebianPackages({ packages }: DebianPackages): Promise<string | null> {
  const folder = pathInCache(await folderName(packages));
  return existsSync(folder) ? folder : null;
}

/** Returns the folder of the unpacked packages. It does not include installed packages. */
export async function ensureDebianPackages(wanted: DebianPackages): Promise<string> {
  const { packages, programs, megabytes } = wanted;
  return ensureFolder({
    name: await folderName(packages),
    description: `Debian's ${packages.join(" and ")} (${megabytes} MB and 10 MB of package lists, with apt-get)`,
    fill: async (folder, finalFolder) => {
      const apt = join(folder, "apt");
      for (const name of ["lists/partial", "archives/partial"]) await mkdir(join(apt, name), { recursive: true });
      await downloadPackages(apt, packages);
      const archives = (await readdir(join(apt, "archives"))).filter((name) => name.endsWith(".deb"));
      for (const name of archives) await run("dpkg-deb", ["--extract", join(apt, "archives", name), folder]);
      await rm(apt, { recursive: true });
      await writeLaunchers(folder, finalFolder, programs);
    },
  });
}

/** One folder per release, because packages need the libraries of the system for which they were built. */
async function folderName(packages: readonly string[]): Promise<string> {
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  const values = ["ID", "VERSION_ID"].map((name) => new RegExp(`^${name}="?([\\w.]+)`, "m").exec(release)?.[1] ?? "");
  return `${values.join("-")}-${packages[0]}`;
}

async function downloadPackages(folder: string, packages: readonly string[]): Promise<void> {
  // One unreachable source fails the update, but the others may have the packages.
  const updateError = await aptGet(folder, ["update"]).then(
    () => null,
    (error: unknown) => error,
  );
  try {
    await aptGet(folder, ["--yes", "--no-install-recommends", "--download-only", "install", ...packages]);
  } catch (error) {
    throw updateError ?? error;
  }
}

async function aptGet(folder: string, args: readonly string[]): Promise<void> {
  const settings = [
    "APT::Update::Error-Mode=any",
    `Dir::State::lists=${folder}/lists`,
    `Dir::Cache::archives=${folder}/archives`,
    // Two files of 40 MB, which only help later runs of apt.
    "Dir::Cache::pkgcache=",
    "Dir::Cache::srcpkgcache=",
    // The locks belong to root; nothing that they protect is written.
    "Debug::NoLocking=true",
    // apt's own user cannot read root's cache.
    ...(process.getuid?.() === 0 ? ["APT::Sandbox::User=root"] : []),
  ];
  await run("apt-get", ["--quiet", ...settings.flatMap((setting) => ["--option", setting]), ...args]);
}

/** Writes a launcher of each program of `usr/bin` into `bin`, which some packages, such as procps, already have. */
export async function writeLaunchers(folder: string, finalFolder: string, programs: readonly string[]): Promise<void> {
  await mkdir(join(folder, "bin"), { recursive: true });
  const libraries: string[] = [];
  for (const parent of ["usr/lib", "lib"]) {
    const names = await readdir(join(folder, parent)).catch(() => []);
    libraries.push(...names.filter((name) => /-linux-gnu/.test(name)).map((name) => join(finalFolder, parent, name)));
  }
  for (const program of programs) {
    if (!existsSync(join(folder, "usr/bin", program))) continue;
    await writeLauncher(join(folder, "bin", program), [join(finalFolder, "usr/bin", program)], {
      LD_LIBRARY_PATH: libraries.join(":"),
    });
  }
}
