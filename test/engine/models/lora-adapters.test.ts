/** LoRA adapters as PEFT saves them, merged into checkpoints with the hub's own files, compared with PEFT. */
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../engine/index.ts";
import {
  adaptedCases,
  adaptedCheckpoints,
  generations,
  loraAdapter,
  writeHubCheckpoint,
} from "../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const variants = adaptedCheckpoints.flatMap((name) => generations.map((generation) => ({ name, generation })));

test.for(variants)(
  "$name with files of transformers $generation answers with its adapter like PEFT",
  async (variant) => {
    const { name, generation } = variant;
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    await writeHubCheckpoint(name, generation, folder.path);
    const config = {
      ...hubEngineConfig(folder.path, cache.path),
      maxModelLen: hubModelLen(name),
      loraAdapter: loraAdapter(name),
    };
    const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
    try {
      const cases = adaptedCases(name);
      const { numAnswers } = await compareHubAnswers(engine, folder.path, cases);
      expect(numAnswers).toBe(2 * cases.length);
    } finally {
      await engine.close();
    }
  },
);
