/** `fovea serve` as a child process that has loaded its model. */
import { startCli } from "./cli-process.ts";
import type { CliProcess } from "./cli-process.ts";

export interface ReadyCli extends AsyncDisposable {
  readonly cli: CliProcess;
  readonly baseUrl: string;
}

/** On a free port of 127.0.0.1. Rejects if the process ends before it is ready. */
export async function startReadyCli(environment: Readonly<Record<string, string>>): Promise<ReadyCli> {
  const cli = startCli(["serve"], { HOST: "127.0.0.1", PORT: "0", ...environment });
  const { port } = await cli.waitForLog("Listening.");
  await cli.waitForLog("Ready.");
  return {
    cli,
    baseUrl: `http://127.0.0.1:${String(port)}`,
    [Symbol.asyncDispose]: () => cli[Symbol.asyncDispose](),
  };
}
