/** Checkpoints with the hub's own files, from a conversation to tokens and texts, compared with transformers. */
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../engine/index.ts";
import {
  generations,
  hubCases,
  hubCheckpoints,
  writeHubCheckpoint,
} from "../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Every generation in one of the layouts, and all checkpoints in both. */
const layouts = { v4: "slots", v5: "paged" } as const;
const variants = generations.flatMap((generation) =>
  hubCheckpoints.map((name) => ({ name, generation, kvLayout: layouts[generation] })),
);

/** For models that compute a picture in one step: one with 70 tokens, and a token of every other case. */
const wholePictureStepTokens: Readonly<Record<string, number>> = {
  "gemma4-12b": 76,
  "gemma4-26b": 76,
  "gemma4-31b": 76,
};

test.for(variants)("$name with files of transformers $generation over $kvLayout answers like it", async (variant) => {
  const { name, generation, kvLayout } = variant;
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, generation, folder.path);
  const defaults = hubEngineConfig(folder.path, cache.path);
  const maxNumBatchedTokens = wholePictureStepTokens[name] ?? defaults.maxNumBatchedTokens;
  const config = { ...defaults, kvLayout, maxNumBatchedTokens, maxModelLen: hubModelLen(name) };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    const cases = hubCases(name);
    const { numAnswers } = await compareHubAnswers(engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
  } finally {
    await engine.close();
  }
});
