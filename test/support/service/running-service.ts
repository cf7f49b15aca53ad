/** The whole service as users get it, with the shipped checkpoint, on a free port of this process. */
import { compose } from "../../../functions/compose.ts";
import { openServer } from "../../../functions/http/server.ts";
import { createLogger } from "../../../functions/logger.ts";
import { loadConfig } from "../../../functions/settings/config.ts";
import { testDataHome } from "./test-data-home.ts";

export interface RunningService extends AsyncDisposable {
  readonly baseUrl: string;
  /** All log lines so far. */
  readonly log: () => string;
}

export async function startService(environment: Readonly<Record<string, string>> = {}): Promise<RunningService> {
  const config = loadConfig({ HOST: "127.0.0.1", PORT: "0", XDG_DATA_HOME: testDataHome, ...environment });
  let log = "";
  const logger = createLogger({ level: "debug", write: (line) => (log += line) });
  const composition = await compose({ config, logger });
  await composition.engine.ready;
  composition.startBackgroundWork();
  const server = await openServer(config, Promise.resolve(composition.listener));
  return {
    baseUrl: `http://127.0.0.1:${server.port}`,
    log: () => log,
    async [Symbol.asyncDispose]() {
      await composition.drain(0);
      await server.close();
      await composition.close();
    },
  };
}

/** Number of requests to the path that the log says were aborted. */
export function countAborted({ log }: RunningService, path: string): number {
  return log()
    .split("\n")
    .filter((line) => line.includes(`"path":"${path}","status":499`)).length;
}
