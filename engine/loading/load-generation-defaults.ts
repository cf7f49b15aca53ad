/** Reads the defaults of requests that a checkpoint's files name. */
import { readGenerationDefaults, type GenerationDefaults } from "../input/generation-defaults.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";

/**
 * @param vocabSize Length of a row of logits.
 * @throws EngineError `invalid_checkpoint` that names file and field.
 */
export async function loadGenerationDefaults(
  { config, readJson }: Pick<Checkpoint, "config" | "readJson">,
  tokenizer: Pick<Tokenizer, "eosToken" | "tokenId">,
  vocabSize: number,
): Promise<GenerationDefaults> {
  return readGenerationDefaults({
    generationConfig: await readJson("generation_config.json"),
    modelConfig: config,
    tokenizerEosTokenId: tokenizer.eosToken === null ? null : tokenizer.tokenId(tokenizer.eosToken),
    vocabSize,
  });
}
