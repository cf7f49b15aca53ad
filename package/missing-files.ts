/** Finds files that built modules name but the build has left out. */
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/**
 * One line for each URL of a module in `folder` that leads to no file there: an asset that is not copied, or a module
 * with the suffix of its source. Modules of web pages do not count.
 */
export function findMissingFiles(folder: string): string[] {
  return globSync("**/*.js", { cwd: folder, exclude: ["functions/playground/**"] }).flatMap((module) => {
    const source = readFileSync(join(folder, module), "utf8");
    const inFolderOf = (path: string): string => join(folder, dirname(module), path);
    const files = [
      ...source.matchAll(/new URL\("([^"]+)", import\.meta\.url\)/g).map(([, path]) => inFolderOf(path!)),
      ...source.matchAll(/moduleUrl\("([^"]+)", import\.meta\.url\)/g).map(([, path]) => inFolderOf(`${path}.js`)),
      ...source
        .matchAll(/new URL\(`([^`$]+)\$\{extname\(import\.meta\.url\)\}`, import\.meta\.url\)/g)
        .map(([, path]) => inFolderOf(`${path}.js`)),
    ];
    return files.filter((file) => !existsSync(file)).map((file) => `${module} names ${relative(folder, file)}`);
  });
}
