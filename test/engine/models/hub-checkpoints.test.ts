/**
 * Checkpoints with the hub's own files, from a conversation to tokens and texts, compared with transformers: over slots,
 * which keep what a prompt can reuse, and with drafts over as few blocks as the longest sequence needs, so that others
 * are preempted.
 */
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, type EngineConfig } from "../../../engine/index.ts";
import {
  generations,
  hubCases,
  hubCheckpoints,
  type HubCase,
  writeHubCheckpoint,
} from "../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Every generation in one of the layouts, and all checkpoints in both. */
const layouts = { v4: "slots", v5: "paged" } as const;
const variants = generations.flatMap((generation) =>
  hubCheckpoints.map((name) => ({ name, generation, kvLayout: layouts[generation] })),
);

const speculativeConfig = { method: "ngram", numSpeculativeTokens: 4, promptLookupMax: 3, promptLookupMin: 1 } as const;
/** Models with recurrent layers, whose states cannot be taken back behind a draft. */
const recurrent = /^(?:lfm|minicpm|qwen3\.5)/;

const BLOCK_SIZE = 16;

/** The fewest blocks that hold the longest sequence, and drafts where the model can check them. */
function scarceBlocks(name: string, cases: readonly HubCase[]): Partial<EngineConfig> {
  const lengths = cases.map(({ promptTokenIds, greedyTokenIds }) => promptTokenIds.length + greedyTokenIds.length);
  const maxModelLen = Math.max(...lengths) + speculativeConfig.numSpeculativeTokens;
  return {
    maxModelLen,
    blockSize: BLOCK_SIZE,
    numBlocks: Math.ceil(maxModelLen / BLOCK_SIZE) + 1,
    speculativeConfig: recurrent.test(name) ? null : speculativeConfig,
  };
}

/** For models that compute a picture in one step: one with 70 tokens, and a token of every other case; or all pictures. */
const wholePictureStepTokens: Readonly<Record<string, number>> = {
  "gemma4-12b": 76,
  "gemma4-26b": 76,
  "gemma4-31b": 76,
  molmo2: 140,
};

test.for(variants)("$name with files of transformers $generation over $kvLayout answers like it", async (variant) => {
  const { name, generation, kvLayout } = variant;
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, generation, folder.path);
  const defaults = hubEngineConfig(folder.path, cache.path);
  const maxNumBatchedTokens = wholePictureStepTokens[name] ?? defaults.maxNumBatchedTokens;
  const cases = hubCases(name);
  const own = kvLayout === "slots" ? { maxModelLen: hubModelLen(name) } : scarceBlocks(name, cases);
  const config = { ...defaults, kvLayout, maxNumBatchedTokens, ...own };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    const { numAnswers, numReusedTokens } = await compareHubAnswers(engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
    const numOfLayout = kvLayout === "slots" ? numReusedTokens : engine.stats.drafts.numDraftTokens;
    expect(numOfLayout > 0).toBe(kvLayout === "slots" || !recurrent.test(name));
  } finally {
    await engine.close();
  }
});
