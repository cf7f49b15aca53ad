/** Runs a Python program with the clients that the tests use. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { ensurePythonClients } from "../../../support/programs/python-clients.ts";

/** A client that waits for an answer which never comes must end. */
const TIMEOUT_MS = 400_000;

/** LiteLLM fetches its list of prices from the network unless it is told not to. */
export const pythonEnvironment = { LITELLM_LOCAL_MODEL_COST_MAP: "True", LITELLM_TELEMETRY: "False" } as const;

/** Returns the JSON that the program printed. Throws an error with its standard error if it fails. */
export async function runPython<Result>(file: string, args: readonly string[]): Promise<Result> {
  const program = fileURLToPath(new URL(file, import.meta.url));
  const options = { env: { ...process.env, ...pythonEnvironment }, timeout: TIMEOUT_MS };
  const { stdout } = await promisify(execFile)(await ensurePythonClients(), [program, ...args], options);
  return JSON.parse(stdout) as Result;
}
