/**
 * Lets the threads that tests start find their modules stripped of types and compiled, as those of the service do.
 *
 * Without it each of them loads Node's type stripper, which is WebAssembly; Node 24 can crash where threads with much of
 * it come and go in one process (V8 frees code of a module that another thread has given up), as in no service, but in
 * tests by the hundred.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Fills the cache that NODE_COMPILE_CACHE names, by one run of everything the service has. */
export async function setup(): Promise<void> {
  await promisify(execFile)(process.execPath, ["functions/cli/main.js", "check", "--run"]);
}
