/** Resolves the module part of a logits processor's name. */
import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { resolveFromFolder } from "./processor-modules.ts";

const moduleExtensions = [".ts", ".mts", ".js", ".mjs"];

/**
 * Returns the `file:` URL of a module given as
 * - a `file:` URL or a path that starts with `/`, `./` or `../`; the extension is optional;
 * - a dotted path: `steering.target_token` is `steering/target_token.{ts,mts,js,mjs}` below a folder of `searchPath`;
 * - a package with or without a subpath: `@acme/steering/processors`, as a file in a folder of `searchPath` or in the
 *   working directory would import it; the extension of a subpath is optional.
 *
 * Throws an Error that lists the places tried.
 */
export async function findProcessorModule(modulePath: string, searchPath: readonly string[]): Promise<string> {
  if (modulePath.startsWith("file:")) return firstExisting([fileURLToPath(modulePath)], []);
  if (/^\.{0,2}\//.test(modulePath)) {
    return firstExisting(
      ["", ...moduleExtensions].map((extension) => resolve(modulePath + extension)),
      [],
    );
  }
  const folders = searchPath.map((folder) => resolve(folder));
  const asPath = /^[\w$-]+(\.[\w$-]+)*$/.test(modulePath) ? modulePath.replaceAll(".", "/") : null;
  const files = folders.flatMap((folder) =>
    asPath === null ? [] : moduleExtensions.map((extension) => join(folder, asPath + extension)),
  );
  return firstExisting(files, [...new Set([...folders, resolve(".")])], modulePath);
}

/** For the path of a file in place of a dotted one. Empty for a name that has no sign of it. */
function hintAtFile(specifier: string): string {
  const withoutExtension = specifier.replace(/\.m?[jt]s$/, "");
  const isPath = specifier.includes("/") || withoutExtension !== specifier;
  if (!isPath || specifier.startsWith("@")) return "";
  const dotted = /^[\w$/-]+$/.test(withoutExtension) ? `${withoutExtension.replaceAll("/", ".")} or ` : "";
  return ` If it is a file, write ${dotted}./${specifier}.`;
}

async function firstExisting(files: readonly string[], folders: readonly string[], specifier = ""): Promise<string> {
  for (const file of files) {
    if (await isFile(file)) return pathToFileURL(file).href;
  }
  const problems: string[] = [];
  for (const folder of folders) {
    const found = await findInPackages(specifier, folder);
    if (found.url !== null) return found.url;
    problems.push(found.problem);
  }
  throw new Error(`the module was not found; tried ${[...files, ...problems].join(", ")}.${hintAtFile(specifier)}`);
}

type PackageModule = { readonly url: string } | { readonly url: null; readonly problem: string };

async function findInPackages(specifier: string, folder: string): Promise<PackageModule> {
  const hasSubpath = specifier.split("/").length > (specifier.startsWith("@") ? 2 : 1);
  let problem = `the package ${specifier} from ${folder}`;
  for (const extension of hasSubpath ? ["", ...moduleExtensions] : [""]) {
    try {
      const url = resolveFromFolder(specifier + extension, folder);
      if (url.startsWith("file:") && (await isFile(fileURLToPath(url)))) return { url };
    } catch (error) {
      // The package exists but does not export the subpath.
      if (isErrorWithCode(error) && error.code === "ERR_PACKAGE_PATH_NOT_EXPORTED" && extension === "") {
        problem = `the package ${specifier} from ${folder} (${error.message})`;
      }
    }
  }
  return { url: null, problem };
}

function isErrorWithCode(error: unknown): error is Error & { readonly code: unknown } {
  return error instanceof Error && "code" in error;
}

/** A folder beside the file may have its name without the extension. */
function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
}
