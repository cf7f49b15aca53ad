/** Engines over text checkpoints with pipelines. */
import { join } from "node:path";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, EngineConfig, Prompt, RequestOutput } from "../../../engine/index.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";

export const miniGpt4Folder = join(goldensFolder, "minigpt4");

export const miniGpt4Params = {
  vision_model: join(miniGpt4Folder, "blip2"),
  projector: join(miniGpt4Folder, "projection.safetensors"),
};

export function miniGpt4Config(cacheFolder: string): EngineConfig {
  return {
    ...goldenEngineConfig("minigpt4/llama", cacheFolder),
    multimodalPipeline: "minigpt4-7b",
    pipelineParams: miniGpt4Params,
  };
}

export async function startEngine(config: EngineConfig): Promise<Engine & AsyncDisposable> {
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  await engine.ready;
  return Object.assign(engine, { [Symbol.asyncDispose]: () => engine.close() });
}

export interface Answer {
  readonly promptTokenIds: readonly number[];
  readonly tokenIds: readonly number[];
  readonly last: RequestOutput;
}

let numRequests = 0;

/** 32 greedy tokens. */
export async function answer(engine: Engine, prompt: Prompt): Promise<Answer> {
  numRequests++;
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true });
  const outputs: RequestOutput[] = [];
  const request = { requestId: `request-${numRequests}`, prompt, samplingParams, includePrompt: true };
  for await (const output of engine.generate(request)) outputs.push(output);
  return {
    promptTokenIds: outputs[0]?.prompt?.tokens.map(({ tokenId }) => tokenId) ?? [],
    tokenIds: outputs.flatMap(({ tokenIds }) => tokenIds),
    last: outputs.at(-1)!,
  };
}
