/** Validates LOGITS_PROCESSOR_DEFAULT_ARGS once the processors are loaded. */
import { createSamplingParams } from "../engine/index.ts";
import type { Engine } from "../engine/index.ts";
import type { Logger } from "./logger.ts";
import type { Config } from "./settings/config.ts";

/**
 * Warns if a logits processor rejects a request with only the default arguments. This is just a warning, because the
 * request may add what they lack: a processor may require a target together with a default strength.
 */
export function warnOfRefusedDefaults(
  engine: Engine,
  { defaultExtraArguments }: Pick<Config, "defaultExtraArguments">,
  logger: Logger,
): void {
  const defaults = engine.modelInfo?.defaultSamplingParams ?? {};
  const refusal = engine.refusalOf(createSamplingParams({ ...defaults, extraArgs: defaultExtraArguments }));
  const refusalWithout = engine.refusalOf(createSamplingParams(defaults));
  // If it is rejected for the same reason without the defaults, the request must bring something itself.
  if (refusal === null || (refusal.name === refusalWithout?.name && refusal.reason === refusalWithout.reason)) return;
  const { name, reason } = refusal;
  logger.warn(`LOGITS_PROCESSOR_DEFAULT_ARGS: ${name} rejects requests that do not override these defaults: ${reason}`);
}
