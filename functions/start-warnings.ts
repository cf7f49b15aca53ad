/** Warnings about settings that can only be checked once the model and the logits processors are loaded. */
import { createSamplingParams, totalSequences } from "../engine/index.ts";
import type { Engine } from "../engine/index.ts";
import type { Logger } from "./logger.ts";
import type { Config } from "./settings/config.ts";

/** The engine must be ready. */
export function warnOfSettings(engine: Engine, config: Config, logger: Logger): void {
  warnOfRefusedDefaults(engine, config, logger);
  warnOfFewerSequences(engine, config, logger);
}

/**
 * Warns if a logits processor rejects requests that have only the default arguments. They are served all the same, because
 * a request may add what the defaults lack: a processor may require a target together with a default strength.
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

/** Warns if fewer sequences run together than the settings allow. */
function warnOfFewerSequences({ modelInfo }: Engine, { engine }: Config, logger: Logger): void {
  const maxNumSequences = totalSequences(engine);
  if (modelInfo === null || modelInfo.maxNumSequences >= maxNumSequences) return;
  logger.warn(
    `The KV cache of ${maxNumSequences} sequences (MAX_NUM_SEQS) of ${modelInfo.maxModelLen} tokens does not fit into the ` +
      `machine's memory: at most ${modelInfo.maxNumSequences} run together. A smaller MAX_MODEL_LEN makes room for more.`,
  );
}
