/** Removes the types of internals from a build: only those that programs can import stay. */
import { existsSync, globSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";

/**
 * Deletes the declarations in `folder` that no entry reaches. Entries are paths of `.d.ts` files, relative to `folder`.
 *
 * @throws Error if an entry, or a file that a declaration imports, does not exist.
 */
export function pruneTypes(folder: string, entries: readonly string[]): void {
  const reached = new Set<string>();
  const queue = entries.map((entry) => join(folder, entry));
  for (const file of queue) {
    if (reached.has(file)) continue;
    if (!existsSync(file)) throw new Error(`${file} does not exist.`);
    reached.add(file);
    const imports = readFileSync(file, "utf8").matchAll(/\b(?:from|import)\s*\(?\s*["'](\.[^"']+)\.[jt]s["']/g);
    queue.push(...Array.from(imports, ([, path]) => join(dirname(file), `${path}.d.ts`)));
  }
  for (const path of globSync("**/*.d.ts", { cwd: folder })) {
    const file = join(folder, path);
    if (!reached.has(file)) rmSync(file);
  }
}
