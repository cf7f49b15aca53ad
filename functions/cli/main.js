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
  const beside =
    process.platform === "linux" && ["x64", "arm64"].includes(process.arch)
      ? `, or install one next to Fovea: npm install node-linux-${process.arch}@${oldestNode[0]}`
      : "";
  console.error(
    `fovea: Fovea needs Node.js ${oldestNode.join(".")} or newer; this is ${process.versions.node}. Install a newer one${beside}`,
  );
  process.exit(EXIT_USAGE);
}

// Threads find the cache through this variable. Without it, each of them would load the type stripper.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");
module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
const { run } = await import("./run.ts");
await run(process.argv.slice(2));
