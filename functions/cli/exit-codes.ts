/** Exit codes of failures. */
import type { EngineErrorCode } from "../../engine/index.ts";
import { ConfigError } from "../settings/setting.ts";

export const EXIT_FAILED = 1;
/** The command line or the environment is invalid: a restart changes nothing. */
export const EXIT_USAGE = 2;
/** The reader of standard output has ended: as a program that SIGPIPE ends. */
export const EXIT_PIPE = 141;

/** Exit codes of signals, as in shells. */
export const exitCodeOfSignal = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

const wrongSetting: EngineErrorCode = "invalid_logits_processor";

/**
 * Most invalid settings are rejected before anything is loaded; parsers of answers and logits processors are found to be
 * invalid when they are.
 */
export function exitCodeOf(error: unknown): number {
  if (error instanceof ConfigError) return EXIT_USAGE;
  // Without its class: importing the engine's modules would delay opening the port.
  const code = error instanceof Error && "code" in error ? error.code : null;
  return code === wrongSetting ? EXIT_USAGE : EXIT_FAILED;
}
