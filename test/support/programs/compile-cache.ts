/**
 * Lets the threads that tests start find their modules compiled and without types, like those of the service. Otherwise
 * each of them would load Node's type stripper.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Fills the cache named by NODE_COMPILE_CACHE, by running everything in the service once. */
export async function setup(): Promise<void> {
  await promisify(execFile)(process.execPath, ["functions/cli/main.js", "check", "--run"]);
}
