/** Compares the answers of an engine over a hub checkpoint with those of transformers. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";

import { createSamplingParams } from "../../../engine/index.ts";
import type { Engine, EngineConfig, SamplingParams } from "../../../engine/index.ts";
import { hubMessages, type HubCase } from "../checkpoints/hub-checkpoints.ts";

/** Other parameters, such as penalties, are the checkpoint's, as in transformers. */
const greedy = { temperature: 0, topK: 0, topP: 1, ignoreEos: true, logprobs: 0 };
/** Different orders of float32 additions. */
const MAX_LOGPROB_DIFFERENCE = 1e-3;

/** Tokens of the longest prompt, for models whose pictures have more tokens than 512 in all. */
const longPrompts: Readonly<Record<string, number>> = { "deepseek-ocr-2": 2048 };

/** `maxModelLen` for the cases of a checkpoint. */
export function hubModelLen(name: string): number {
  return longPrompts[name] ?? 512;
}

/** Small enough that requests wait, are split into chunks and share slots. */
export function hubEngineConfig(model: string, cacheFolder: string): EngineConfig {
  return {
    model,
    dtype: "float32",
    device: "cpu",
    deviceId: 0,
    maxModelLen: 512,
    maxNumSequences: 7,
    // Fewer than a picture has, so that prompts end inside of one.
    maxNumBatchedTokens: 24,
    maxNumWaiting: 7,
    logitsProcessors: [],
    logitsProcessorPath: [],
    numThreads: 1,
    cacheFolder,
    imageLimits: { maxImagesPerPrompt: 3, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 5000 },
  };
}

/**
 * Asks each case at the same time, and then one by one, on the keys and values that the first run left behind. Returns
 * the number of answers that equal those of transformers, and of prompt tokens that the second time reused.
 *
 * @param params Of all requests, beside those of a greedy answer.
 */
export async function compareHubAnswers(
  engine: Engine,
  folder: string,
  cases: readonly HubCase[],
  params: Partial<SamplingParams> = {},
): Promise<{ readonly numAnswers: number; readonly numReusedTokens: number }> {
  const fallsBackToBytes = (await readFile(join(folder, "tokenizer.json"), "utf8")).includes("ByteFallback");
  await engine.ready;
  const answer = (golden: HubCase): Promise<number> => expectAnswer(engine, golden, params, fallsBackToBytes);
  const together = await Promise.all(cases.map(answer));
  const reused: number[] = [];
  for (const golden of cases) reused.push(await answer(golden));
  const numReusedTokens = reused.reduce((sum, numTokens) => sum + numTokens, 0);
  return { numAnswers: together.length + reused.length, numReusedTokens };
}

/** Returns the number of reused tokens. */
async function expectAnswer(
  engine: Engine,
  golden: HubCase,
  params: Partial<SamplingParams>,
  fallsBackToBytes: boolean,
): Promise<number> {
  const { defaultSamplingParams: defaults } = engine.modelInfo!;
  const request = {
    requestId: golden.name,
    prompt: { kind: "chat", messages: await hubMessages(golden), addGenerationPrompt: true },
    samplingParams: createSamplingParams({
      ...defaults,
      ...greedy,
      maxTokens: golden.greedyTokenIds.length,
      ...params,
    }),
    ...(golden.sampling && { videoSampling: golden.sampling }),
    ...(golden.adapter !== undefined && { adapter: golden.adapter }),
    ...(golden.options && { mmProcessorOptions: golden.options }),
  } as const;
  const promptTokenIds: number[] = [];
  const tokenIds: number[] = [];
  const logprobs: number[] = [];
  let text = "";
  let numCachedTokens = 0;
  for await (const output of engine.generate({ ...request, includePrompt: true })) {
    promptTokenIds.push(...(output.prompt?.tokens.map(({ tokenId }) => tokenId) ?? []));
    tokenIds.push(...output.tokenIds);
    logprobs.push(...(output.logprobs ?? []).map(({ sampled }) => sampled.logprob));
    text += output.text;
    numCachedTokens = output.numCachedTokens;
  }
  expect(promptTokenIds).toEqual(golden.promptTokenIds);
  expect(tokenIds).toEqual(golden.greedyTokenIds);
  expect(logprobs).toHaveLength(golden.logprobs.length);
  const differences = golden.logprobs.map((expected, index) => Math.abs(expected - (logprobs[index] ?? Infinity)));
  expect(Math.max(...differences)).toBeLessThan(MAX_LOGPROB_DIFFERENCE);
  // Tokenizers with byte fallback: transformers gives up whole runs of bytes, see docs/checkpoints.md.
  const isComparable = !fallsBackToBytes || !golden.answer.includes("\uFFFD");
  expect(isComparable ? text : golden.answer).toBe(golden.answer);
  return numCachedTokens;
}
