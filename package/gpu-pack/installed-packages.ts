/** Which folders of node_modules a program needs, from package-lock.json. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface LockedPackage {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

/**
 * Paths below the repository of the packages that the production dependencies and the named others need. Optional ones
 * are those that are installed: for this machine, which is to be the same kind as the other.
 *
 * @throws Error for a named package, or a dependency, that is not installed.
 */
export function installedPackages(repository: string, others: readonly string[]): string[] {
  const lock = JSON.parse(readFileSync(join(repository, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  const root = lock.packages[""]!;
  const found = new Set<string>();
  const visit = (name: string, from: string, isOptional: boolean): void => {
    const path = resolvePackage(lock.packages, repository, name, from);
    if (path === null) {
      if (isOptional) return;
      throw new Error(`${name}, which ${from === "" ? "the repository" : from} needs, is not installed: run npm ci.`);
    }
    if (found.has(path)) return;
    found.add(path);
    const { dependencies = {}, optionalDependencies = {}, peerDependencies = {} } = lock.packages[path]!;
    for (const dependency of Object.keys(dependencies)) visit(dependency, path, dependency in optionalDependencies);
    for (const dependency of Object.keys({ ...optionalDependencies, ...peerDependencies }))
      visit(dependency, path, true);
  };
  for (const name of [...Object.keys(root.dependencies ?? {}), ...others]) visit(name, "", false);
  for (const name of Object.keys(root.optionalDependencies ?? {})) visit(name, "", true);
  // What lies in another package's folder goes with it.
  const paths = [...found].sort();
  return paths.filter((path) => !paths.some((other) => path.startsWith(`${other}/`)));
}

/** As Node does: beside the package, then beside each package around it. */
function resolvePackage(
  packages: Readonly<Record<string, LockedPackage>>,
  repository: string,
  name: string,
  from: string,
): string | null {
  const folders = from.split("/node_modules/");
  for (let depth = folders.length; depth >= 0; depth--) {
    const around = from === "" ? "" : folders.slice(0, depth).join("/node_modules/");
    const path = `${around === "" ? "" : `${around}/`}node_modules/${name}`;
    if (path in packages && existsSync(join(repository, path))) return path;
  }
  return null;
}
