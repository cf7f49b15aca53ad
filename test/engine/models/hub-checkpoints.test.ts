/** Checkpoints with the hub's own files, from a conversation to tokens and texts, compared with transformers. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import { smallEngineConfig } from "../../support/engine-config.ts";
import {
  generations,
  hubCases,
  hubCheckpoints,
  hubMessages,
  writeHubCheckpoint,
  type HubCase,
} from "../../support/hub-checkpoints.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Every generation in one of the layouts, and all checkpoints in both. */
const layouts = { v4: "slots", v5: "paged" } as const;
const variants = generations.flatMap((generation) =>
  hubCheckpoints.map((name) => ({ name, generation, kvLayout: layouts[generation] })),
);

/** Fewer than a picture has, so that prompts end inside of one. */
const STEP_TOKENS = 24;
/** For models that compute a picture in one step: one with 70 tokens, and a token of every other case. */
const wholePictureStepTokens: Readonly<Record<string, number>> = { "gemma4-31b": 76 };

/** Other parameters, such as penalties, are the checkpoint's, as in transformers. */
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 32, ignoreEos: true, logprobs: 0 };
/** Different orders of float32 additions. */
const MAX_LOGPROB_DIFFERENCE = 1e-3;

test.for(variants)("$name with files of transformers $generation over $kvLayout answers like it", async (variant) => {
  const { name, generation, kvLayout } = variant;
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, generation, folder.path);
  const fallsBackToBytes = (await readFile(join(folder.path, "tokenizer.json"), "utf8")).includes("ByteFallback");
  const config = {
    ...smallEngineConfig(folder.path, cache.path),
    maxModelLen: 512,
    maxNumSequences: 7,
    maxNumWaiting: 7,
    kvLayout,
    maxNumBatchedTokens: wholePictureStepTokens[name] ?? STEP_TOKENS,
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    const ask = async (golden: HubCase): Promise<void> => {
      const { defaultSamplingParams: defaults } = engine.modelInfo!;
      const request = {
        requestId: golden.name,
        prompt: { kind: "chat", messages: await hubMessages(golden), addGenerationPrompt: true },
        samplingParams: createSamplingParams({ ...defaults, ...greedy }),
      } as const;
      const promptTokenIds: number[] = [];
      const tokenIds: number[] = [];
      const logprobs: number[] = [];
      let text = "";
      for await (const output of engine.generate({ ...request, includePrompt: true })) {
        promptTokenIds.push(...(output.prompt?.tokens.map(({ tokenId }) => tokenId) ?? []));
        tokenIds.push(...output.tokenIds);
        logprobs.push(...(output.logprobs ?? []).map(({ sampled }) => sampled.logprob));
        text += output.text;
      }
      expect(promptTokenIds).toEqual(golden.promptTokenIds);
      expect(tokenIds).toEqual(golden.greedyTokenIds);
      expect(logprobs).toHaveLength(golden.logprobs.length);
      const differences = golden.logprobs.map((expected, index) => Math.abs(expected - (logprobs[index] ?? Infinity)));
      expect(Math.max(...differences)).toBeLessThan(MAX_LOGPROB_DIFFERENCE);
      // Tokenizers with byte fallback: transformers gives up whole runs of bytes, see docs/checkpoints.md.
      const isComparable = !fallsBackToBytes || !golden.answer.includes("\uFFFD");
      expect(isComparable ? text : golden.answer).toBe(golden.answer);
    };
    const cases = hubCases(name);
    await Promise.all(cases.map(ask));
    // Again, one by one, on the keys and values that the first run left behind.
    for (const golden of cases) await ask(golden);
  } finally {
    await engine.close();
  }
});
