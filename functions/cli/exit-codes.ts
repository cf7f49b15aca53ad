/** What the process ends with where it does not do what was asked. */
import { EngineError } from "../../engine/index.ts";

export const EXIT_FAILED = 1;
/** The command line or the environment is wrong: starting again changes nothing. */
export const EXIT_USAGE = 2;

/** Of a process ended by a signal, as shells count them. */
export const exitCodeOfSignal = { SIGINT: 130, SIGTERM: 143 } as const;

/** Other settings are refused before an engine is made; whether a logits processor is one only the engine can tell. */
export function exitCodeOf(error: unknown): number {
  return error instanceof EngineError && error.code === "invalid_logits_processor" ? EXIT_USAGE : EXIT_FAILED;
}
