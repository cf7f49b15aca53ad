/**
 * Lets the threads that tests start find their modules stripped of types and compiled, as those of the service do.
 * Without it each of them would load Node's type stripper.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Fills the cache that NODE_COMPILE_CACHE names, by one run of everything the service has. */
export async function setup(): Promise<void> {
  await promisify(execFile)(process.execPath, ["functions/cli/main.js", "check", "--run"]);
}
