/** Whole models, from a request with pictures to its tokens, compared with the greedy tokens of transformers. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import { goldensFolder, loadGoldens, type GoldenCase } from "../../support/checkpoints/goldens.ts";
import { smallEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { chat, qwen2Vl, text } from "./golden-prompts.ts";

const models = [
  { name: "llava-siglip", toPrompt: chat },
  { name: "smolvlm", toPrompt: chat },
  { name: "fuyu", toPrompt: text },
  { name: "qwen2-vl", toPrompt: qwen2Vl },
] as const;

const variants = (["slots", "paged"] as const).flatMap((kvLayout) =>
  models.map(({ name, toPrompt }) => ({ name, toPrompt, kvLayout })),
);

test.for(variants)("$name over $kvLayout answers about pictures with the tokens of transformers", async (variant) => {
  const { name, toPrompt, kvLayout } = variant;
  await using cache = await createTemporaryFolder();
  const config = {
    ...smallEngineConfig(join(goldensFolder, name), cache.path),
    kvLayout,
    // Fewer than a picture has, so that prompts end inside of one.
    maxNumBatchedTokens: 24,
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    const cases = (await loadGoldens(name)).cases.filter(({ pictures }) => pictures.length > 0);
    const ask = async (golden: GoldenCase): Promise<void> => {
      const tokenIds: number[] = [];
      const request = {
        requestId: golden.name,
        prompt: await toPrompt(golden),
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) tokenIds.push(...output.tokenIds);
      expect(tokenIds).toEqual(golden.greedyTokenIds);
    };
    await Promise.all(cases.map(ask));
    // Again, on the keys and values that the first run left behind.
    for (const golden of cases) await ask(golden);
  } finally {
    await engine.close();
  }
});
