/** `fovea/server`: the HTTP service inside another program. */
import type { Engine } from "../engine/index.ts";
import { createLogger } from "./logger.ts";
import { loadConfig, settingDescriptions } from "./settings/config.ts";
import type { SettingName } from "./settings/config.ts";
import { findNearNames } from "./settings/near-names.ts";
import { ConfigError } from "./settings/setting.ts";
import { startService } from "./start-service.ts";

export { ConfigError } from "./settings/setting.ts";

/** Settings by the names that `fovea --help` lists; omitted settings have their defaults. */
export type ServeSettings = { readonly [Name in SettingName]?: string | number | boolean | undefined };

export interface ServeOptions {
  /** Receives each line of the log: a JSON object and a newline. Without it, nothing is logged. */
  readonly log?: (line: string) => void;
}

export interface RunningService extends AsyncDisposable {
  readonly port: number;
  /**
   * Resolves to the engine when requests are served.
   *
   * @throws EngineError (as a rejection) of loading.
   */
  readonly ready: Promise<Engine>;
  /**
   * Rejects new requests, waits up to SHUTDOWN_GRACE_SECONDS for requests in progress, and frees everything, including
   * the engine. Resolves to whether all requests ended by themselves. Idempotent.
   */
  close(): Promise<boolean>;
}

/**
 * Serves a model over HTTP in this process, like `fovea serve`, and resolves when the port is open. Leaves signals to
 * the caller. Reads no environment variables except XDG_CACHE_HOME and XDG_DATA_HOME; the AWS SDK and Google's
 * authentication library read their own.
 *
 * @throws ConfigError with one sentence for each invalid setting.
 * @throws Error of the system (`EADDRINUSE`, `EACCES`, ...) if the port cannot be opened.
 */
export async function serve(
  settings: ServeSettings = {},
  { log = () => {} }: ServeOptions = {},
): Promise<RunningService> {
  requireKnownNames(Object.keys(settings));
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  const config = loadConfig({
    XDG_CACHE_HOME: process.env.XDG_CACHE_HOME,
    XDG_DATA_HOME: process.env.XDG_DATA_HOME,
    ...Object.fromEntries(given.map(([name, value]) => [name, String(value)])),
  });
  const { port, ready, stop } = await startService({
    config,
    logger: createLogger({ level: config.logLevel, write: log }),
  });
  return {
    port,
    ready,
    close: stop,
    async [Symbol.asyncDispose]() {
      await stop();
    },
  };
}

/** In plain JavaScript, types do not catch a misspelled name. */
function requireKnownNames(names: readonly string[]): void {
  const known = settingDescriptions.map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length === 0) return;
  throw new ConfigError(
    unknown.map((name) => {
      const [near] = findNearNames({ [name.toUpperCase()]: "" }, known);
      const meant = known.find((setting) => setting === name.toUpperCase()) ?? near?.meant;
      return `${name} is not a setting; ${meant === undefined ? "fovea --help lists them." : `did you mean ${meant}?`}`;
    }),
  );
}
