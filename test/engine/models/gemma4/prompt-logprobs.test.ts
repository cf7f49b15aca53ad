import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../../engine/index.ts";
import { hubCases, writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig } from "../../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

test.for(["slots", "paged"] as const)(
  "over %s, a request for the prompt's logprobs gets transformers' answer about a picture of 70 tokens",
  async (kvLayout) => {
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    await writeHubCheckpoint("gemma4-31b", "v4", folder.path);
    // A picture and a token of every other case.
    const config = { ...hubEngineConfig(folder.path, cache.path), kvLayout, maxNumBatchedTokens: 76 };
    const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
    try {
      const cases = hubCases("gemma4-31b").filter(({ pictures }) => pictures.length > 0);
      const { numAnswers } = await compareHubAnswers(engine, folder.path, cases, { promptLogprobs: 0 });
      expect(numAnswers).toBe(2 * cases.length);
      expect(cases.length).toBeGreaterThan(0);
    } finally {
      await engine.close();
    }
  },
);
