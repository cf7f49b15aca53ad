/** Engines over the recorded exports. */
import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../../engine/index.ts";
import type { Engine, EngineConfig, RequestOutput } from "../../../../engine/index.ts";
import type { GoldenCase } from "../../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../../support/engine/engine-config.ts";
import { chat, qwen2Vl } from "../golden-prompts.ts";

export const exports = [
  { name: "onnx-exports/llava", toPrompt: chat },
  { name: "onnx-exports/smolvlm", toPrompt: chat },
  { name: "onnx-exports/qwen2-vl", toPrompt: qwen2Vl },
  { name: "onnx-exports/llama", toPrompt: chat },
] as const;

export type Export = (typeof exports)[number];

/** Resolves when it is ready; the caller closes it. */
export async function startExport(
  name: Export["name"],
  cacheFolder: string,
  overrides: Partial<EngineConfig> = {},
): Promise<Engine> {
  const config = { ...goldenEngineConfig(name, cacheFolder), maxNumWaiting: 64, ...overrides };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  await engine.ready;
  return engine;
}

/** Of all outputs of one greedy answer. */
export async function ask(
  engine: Engine,
  toPrompt: Export["toPrompt"],
  golden: GoldenCase,
  { requestId = golden.name, logprobs = null }: { requestId?: string; logprobs?: number | null } = {},
): Promise<{
  tokenIds: number[];
  logprobs: NonNullable<RequestOutput["logprobs"]>[number][];
  numCachedTokens: number;
}> {
  const maxTokens = golden.greedyTokenIds.length;
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true, logprobs });
  const answer = {
    tokenIds: [] as number[],
    logprobs: [] as NonNullable<RequestOutput["logprobs"]>[number][],
    numCachedTokens: 0,
  };
  for await (const output of engine.generate({ requestId, prompt: await toPrompt(golden), samplingParams })) {
    answer.tokenIds.push(...output.tokenIds);
    answer.logprobs.push(...(output.logprobs ?? []));
    answer.numCachedTokens = output.numCachedTokens;
  }
  return answer;
}
