#!/usr/bin/env node
/**
 * Entry of the command line. Loads nothing itself but the compile cache, which keeps all other modules without their
 * types and compiled. This file is JavaScript because it runs before that: Node's type stripper would be loaded for it
 * alone, at every start.
 */
import { enableCompileCache } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The way in which threads are told of the cache; without it each of them would load the type stripper.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), "node-compile-cache");
enableCompileCache(process.env.NODE_COMPILE_CACHE);
const { run } = await import("./run.ts");
await run(process.argv.slice(2));
