/** Videos with the hub's own files, from a file to tokens and texts, compared with transformers. */
import { expect, test } from "vitest";

import { defaultVideoLimits } from "../../../engine/contract/default-limits.ts";
import { createDataUrlImageSource, createEngine } from "../../../engine/index.ts";
import { videoCases, videoCheckpoints, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Each checkpoint with the files of one generation, over one of the layouts. */
const variants = videoCheckpoints.map((name, index) =>
  index % 2 === 0
    ? ({ name, generation: "v4", kvLayout: "slots" } as const)
    : ({ name, generation: "v5", kvLayout: "paged" } as const),
);

/** Tokens of a step, for models that compute a picture in one. */
const wholePictureStepTokens = 76;

test.for(variants)("$name with files of transformers $generation shows videos like it", async (variant) => {
  const { name, generation, kvLayout } = variant;
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, generation, folder.path);
  const config = {
    ...hubEngineConfig(folder.path, cache.path),
    kvLayout,
    maxModelLen: 1024,
    maxNumBatchedTokens: wholePictureStepTokens,
    videoLimits: { ...defaultVideoLimits, maxVideosPerPrompt: 2 },
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    const cases = videoCases(name);
    const { numAnswers, numReusedTokens } = await compareHubAnswers(engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
    expect(numReusedTokens).toBeGreaterThan(0);
  } finally {
    await engine.close();
  }
});
