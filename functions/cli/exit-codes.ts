/** What the process ends with where it does not do what was asked. */
import type { EngineErrorCode } from "../../engine/index.ts";

export const EXIT_FAILED = 1;
/** The command line or the environment is wrong: starting again changes nothing. */
export const EXIT_USAGE = 2;

/** Of a process ended by a signal, as shells count them. */
export const exitCodeOfSignal = { SIGINT: 130, SIGTERM: 143 } as const;

const wrongSetting: EngineErrorCode = "invalid_logits_processor";

/** Other settings are refused before an engine is made; whether a logits processor is one only the engine can tell. */
export function exitCodeOf(error: unknown): number {
  // Not by its class: the engine's modules would have to be loaded before the port is open.
  const code = error instanceof Error && "code" in error ? error.code : null;
  return code === wrongSetting ? EXIT_USAGE : EXIT_FAILED;
}
