/** Looks at LOGITS_PROCESSOR_DEFAULT_ARGS once the processors are there that they are for. */
import { createSamplingParams } from "../engine/index.ts";
import type { Engine } from "../engine/index.ts";
import type { Config } from "./settings/config.ts";
import type { Logger } from "./logger.ts";

/**
 * Warns where a logits processor refuses a request for its default arguments alone. It is no more than a warning, since
 * the request may bring what they lack: a default strength is refused by a processor that wants a target beside it.
 */
export function warnOfRefusedDefaults(
  engine: Engine,
  { defaultExtraArguments }: Pick<Config, "defaultExtraArguments">,
  logger: Logger,
): void {
  const defaults = engine.modelInfo?.defaultSamplingParams ?? {};
  const refusal = engine.refusalOf(createSamplingParams({ ...defaults, extraArgs: defaultExtraArguments }));
  const refusalWithout = engine.refusalOf(createSamplingParams(defaults));
  // Refused for the same reason without them, a request is refused for something that it has to bring itself.
  if (refusal === null || (refusal.name === refusalWithout?.name && refusal.reason === refusalWithout.reason)) return;
  const { name, reason } = refusal;
  logger.warn(`LOGITS_PROCESSOR_DEFAULT_ARGS: ${name} rejects requests that do not override these defaults: ${reason}`);
}
