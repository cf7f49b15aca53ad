/** `fovea/server`: the HTTP service inside another program. */
import type { Engine } from "../engine/index.ts";
import { createLogger } from "./logger.ts";
import { loadConfig, settingDescriptions } from "./settings/config.ts";
import type { Config, SettingName } from "./settings/config.ts";
import { findNearNames } from "./settings/near-names.ts";
import { ConfigError } from "./settings/setting.ts";
import { startService } from "./start-service.ts";

export { ConfigError } from "./settings/setting.ts";

/**
 * Settings by the names that `fovea --help` lists; omitted settings have their defaults. Objects and lists of objects are
 * for settings that take JSON.
 */
export type ServeSettings = { readonly [Name in SettingName]?: string | number | boolean | object | undefined };

export interface ServeOptions {
  /** Receives each line of the log: a JSON object and a newline. Without it, nothing is logged. */
  readonly log?: (line: string) => void;
}

export interface RunningService extends AsyncDisposable {
  readonly port: number;
  /**
   * Resolves to the engine when requests are served.
   *
   * @throws EngineError (as a rejection) of loading, ConfigError for a queue or a parser that cannot be used.
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
  const config = configOf(settings);
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

/** @throws ConfigError with every problem: unknown names and invalid values. */
function configOf(settings: ServeSettings): Config {
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  const problems = unknownNames(Object.keys(settings));
  try {
    const config = loadConfig({
      XDG_CACHE_HOME: process.env.XDG_CACHE_HOME,
      XDG_DATA_HOME: process.env.XDG_DATA_HOME,
      ...Object.fromEntries(given.map(([name, value]) => [name, toText(value)])),
    });
    if (problems.length === 0) return config;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    problems.push(...error.problems);
  }
  throw new ConfigError(problems);
}

/** As the environment would give it. */
function toText(value: unknown): string {
  const isJson = Array.isArray(value) ? value.some((entry) => isPlainObject(entry)) : isPlainObject(value);
  return isJson ? JSON.stringify(value) : String(value);
}

/** Others, such as a URL, have a text of their own. */
function isPlainObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** In plain JavaScript, types do not catch a misspelled name. */
function unknownNames(names: readonly string[]): string[] {
  const known = settingDescriptions.map(({ name }) => name);
  return names
    .filter((name) => !known.includes(name))
    .map((name) => {
      const [near] = findNearNames({ [name.toUpperCase()]: "" }, known);
      const meant = known.find((setting) => setting === name.toUpperCase()) ?? near?.meant;
      return `${name} is not a setting; ${meant === undefined ? "fovea --help lists them." : `did you mean ${meant}?`}`;
    });
}
