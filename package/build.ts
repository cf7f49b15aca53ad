/**
 * Builds dist/, the content of the npm package: the compiled modules, the types of its entries, and the files that the
 * modules read, each at the same relative place as in the repository. Node does not strip types below node_modules, so
 * a package of sources would not run there.
 */
import { execFileSync } from "node:child_process";
import { cpSync, globSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

import packageJson from "../package.json" with { type: "json" };
import { halveCheckpoint } from "./half-checkpoint.ts";
import { findMissingFiles } from "./missing-files.ts";
import { pruneTypes } from "./prune-types.ts";

const repository = fileURLToPath(new URL("..", import.meta.url));
const dist = join(repository, "dist");
/** Built next to dist/ and renamed, so that a failed build does not change the last one. */
const building = join(repository, ".cache", `dist-${process.pid}`);

/** Files that modules read at run time. The checkpoint's held-out pictures are only for measurements. */
const assets = [
  ...globSync("engine/**/*.wasm", { cwd: repository }),
  ...globSync("functions/playground/*.{js,css,html,svg}", { cwd: repository }),
  ...globSync("models/fovea-shapes/{*,examples/*}.*", { cwd: repository }),
];

/** The modules that programs can import. */
const typesOfEntries = Object.values(packageJson.exports).flatMap((entry) =>
  typeof entry === "string" ? [] : [relative("dist", entry.types.default)],
);

function compile(...options: readonly string[]): void {
  const compiler = join(repository, "node_modules", "typescript", "bin", "tsc");
  const args = [compiler, "-p", join(repository, "package"), "--outDir", building, ...options];
  execFileSync(process.execPath, args, { stdio: "inherit" });
}

try {
  // Editors show the comments of types. In the modules, they would be a sixth of the text.
  compile("--declaration", "false", "--removeComments");
  compile("--emitDeclarationOnly");
  for (const path of assets) {
    mkdirSync(dirname(join(building, path)), { recursive: true });
    cpSync(join(repository, path), join(building, path));
  }
  pruneTypes(building, typesOfEntries);
  await halveCheckpoint(join(building, "models/fovea-shapes"));
  const missing = findMissingFiles(building);
  if (missing.length > 0) {
    const advice = "Name modules with moduleUrl() of engine/module-url.ts, and add other files to package/build.ts.";
    throw new Error(`The package would lack files:\n  ${missing.join("\n  ")}\n${advice}`);
  }
  rmSync(dist, { recursive: true, force: true });
  renameSync(building, dist);
} finally {
  rmSync(building, { recursive: true, force: true });
}
