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
    maxNumSequences: 8,
    maxNumWaiting: 8,
    // Fewer than a picture has, so that prompts end inside of one.
    maxNumBatchedTokens: 24,
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    const cases = (await loadGoldens(name)).cases.filter(({ pictures }) => pictures.length > 0);
    const ask = async (golden: GoldenCase, cacheSalt = "first"): Promise<void> => {
      const tokenIds: number[] = [];
      const request = {
        requestId: `${golden.name} ${cacheSalt}`,
        cacheSalt,
        prompt: await toPrompt(golden),
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) tokenIds.push(...output.tokenIds);
      expect(tokenIds).toEqual(golden.greedyTokenIds);
    };
    // With seven others, which share no keys and values with it.
    const salts = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];
    const eight = salts.flatMap((salt) => cases.map((golden) => [golden, salt] as const)).slice(0, 8);
    await Promise.all(eight.map(([golden, salt]) => ask(golden, salt)));
    // Again, on the keys and values that the first run left behind.
    for (const golden of cases) await ask(golden);
  } finally {
    await engine.close();
  }
});
