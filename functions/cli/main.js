#!/usr/bin/env node
/**
 * Entry of the command line. It loads only the compile cache, which stores all other modules compiled and without
 * types. This file is JavaScript because it runs before that: Node would otherwise load its type stripper for this file
 * at every start. It imports no name that an old Node lacks, so that it can report which Node is required.
 */
import module from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** As in `engines` of package.json: the oldest Node that runs everything, by major and minor version. */
const oldestNode = [24, 6];
/** As in exit-codes.ts, which an old Node could not load. */
const EXIT_USAGE = 2;

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < oldestNode[0] || (major === oldestNode[0] && minor < oldestNode[1])) {
  // For Linux, npm has packages of Node without install scripts, and npx uses the one that is installed next to Fovea.
  const isPackaged = process.platform === "linux" && ["x64", "arm64"].includes(process.arch);
  const advice = (await isCheckout())
    ? "Run npm ci in the checkout, which installs one, and then npm start, which uses it."
    : isPackaged
      ? `Install a newer one, or install one next to Fovea: npm install node-linux-${process.arch}@${oldestNode[0]}`
      : "Install a newer one";
  console.error(
    `fovea: Fovea needs Node.js ${oldestNode.join(".")} or newer; this is ${process.versions.node}. ${advice}`,
  );
  process.exit(EXIT_USAGE);
}

// Threads find the cache through this variable. Without it, each of them would load the type stripper.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");
module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
const { run } = await import("./run.ts").catch(exitWithoutPackages);
await run(process.argv.slice(2));

/** The npm package has no lock file. */
async function isCheckout() {
  const { existsSync } = await import("node:fs");
  const { fileURLToPath } = await import("node:url");
  return existsSync(join(fileURLToPath(import.meta.url), "../../../package-lock.json"));
}

async function exitWithoutPackages(/** @type {unknown} */ error) {
  const isMissing = error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND";
  const name = isMissing ? /^Cannot find package '([^']+)'/.exec(error.message)?.[1] : undefined;
  if (name === undefined) throw error;
  const advice = (await isCheckout()) ? "Run npm ci in the checkout." : "Install Fovea again.";
  console.error(`fovea: The package ${name} is not installed. ${advice}`);
  process.exit(EXIT_USAGE);
}
