/** Chunks of prompts over an 8-bit KV cache. From 128 tokens on, the attention of one sequence has pieces. */
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import { writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { createWorkerOptions, SteppedEngine } from "../core/golden-engine.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder } from "./direct-decoder.ts";

const kvPrecision = { kind: "int8", steps: null } as const;
const sampleTokens = async (): Promise<number[]> => Array.from({ length: 64 }, (_, index) => 3 + index);

async function buildModel(name: string, folder: string): Promise<BuiltModel> {
  await writeHubCheckpoint(name, "v5", folder);
  return buildFrom(folder, { cacheFolder: folder, kvPrecision, sampleTokens });
}

const promptOf = (length: number): number[] => Array.from({ length }, (_, place) => 3 + ((place * 17) % 250));

/** Log probabilities of the tokens after a prompt, computed in chunks of at most `maxNumBatchedTokens`. */
async function logprobsAfter(model: BuiltModel, length: number, maxNumBatchedTokens: number): Promise<number[]> {
  using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens }));
  engine.add({
    requestId: "prompt",
    promptTokenIds: promptOf(length),
    images: [],
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 3, logprobs: 1 }),
    badWordsTokenIds: [],
    cacheSalt: null,
    grammar: null,
    seed: 0,
  });
  await engine.runToEnd();
  const { outputs } = engine.generations.get("prompt")!;
  return outputs.flatMap(({ logprobs }) => (logprobs ?? []).map(({ sampled }) => sampled.logprob));
}

test.for(["llama-3", "qwen3", "phi-3", "gemma4-text", "glm-4.1v", "lfm2"])(
  "%s computes a prompt in pieces as without them, to the last bit",
  async (name) => {
    await using folder = await createTemporaryFolder();
    const model = await buildModel(name, folder.path);
    for (const length of [128, 131, 300]) {
      const withoutPieces = await logprobsAfter(model, length, 100);
      expect(withoutPieces).toHaveLength(3);
      expect(await logprobsAfter(model, length, length)).toEqual(withoutPieces);
      // Of 300 tokens, the second chunk has pieces behind earlier tokens.
      expect(await logprobsAfter(model, length, 150)).toEqual(withoutPieces);
    }
  },
);

test("two long prompts in one run get the logits of each alone", async () => {
  await using folder = await createTemporaryFolder();
  using decoder = new DirectDecoder(await buildModel("llama-3", folder.path), { numSlots: 2, maxLength: 512 });
  const prompts = [promptOf(140), promptOf(140).toReversed()];
  const last = 139;
  const alone = prompts.flatMap((prompt) => [
    ...decoder.run({ tokenIds: [prompt], numComputed: [0], logitRows: [last] }),
  ]);
  const together = decoder.run({ tokenIds: prompts, numComputed: [0, 0], logitRows: [last, 140 + last] });
  expect([...together]).toEqual(alone);
});
