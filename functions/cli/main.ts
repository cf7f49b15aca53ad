#!/usr/bin/env node
/** Entry of the command line. Loads nothing itself but the compile cache, which makes loading the rest faster. */
import { enableCompileCache } from "node:module";

enableCompileCache();
const { run } = await import("./run.ts");
await run(process.argv.slice(2));
