/** Warns if fewer sequences run together than the settings allow. */
import { totalSequences } from "../engine/index.ts";
import type { Engine } from "../engine/index.ts";
import type { Logger } from "./logger.ts";
import type { Config } from "./settings/config.ts";

/** The engine must be ready. */
export function warnOfFewerSequences({ modelInfo }: Engine, { engine }: Config, logger: Logger): void {
  const maxNumSequences = totalSequences(engine);
  if (modelInfo === null || modelInfo.maxNumSequences >= maxNumSequences) return;
  logger.warn(
    `The KV cache of ${maxNumSequences} sequences (MAX_NUM_SEQS) of ${modelInfo.maxModelLen} tokens does not fit into the ` +
      `machine's memory: at most ${modelInfo.maxNumSequences} run together. A smaller MAX_MODEL_LEN makes room for more.`,
  );
}
