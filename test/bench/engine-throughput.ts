/** Tokens per second of the whole engine: requests in, text deltas out, through both threads. */
import { performance } from "node:perf_hooks";
import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { DtypeName, Engine, EngineConfig } from "../../engine/index.ts";
import { shape } from "./shape.ts";

export interface EngineBenchOptions {
  readonly model: string;
  readonly dtype: DtypeName;
  readonly numThreads: number;
  readonly cacheFolder: string;
}

export function benchConfig(options: EngineBenchOptions): EngineConfig {
  return {
    model: options.model,
    dtype: options.dtype,
    device: "cpu",
    deviceId: 0,
    maxModelLen: 1024,
    maxNumSequences: 32,
    maxNumBatchedTokens: 512,
    maxNumWaiting: 256,
    logitsProcessors: [],
    logitsProcessorPath: [],
    numThreads: options.numThreads,
    cacheFolder: options.cacheFolder,
    imageLimits: { maxImagesPerPrompt: 0, maxImageBytes: 1, maxImagePixels: 1, fetchTimeoutMs: 1 },
  };
}

export async function withEngine<Result>(
  options: EngineBenchOptions,
  work: (engine: Engine) => Promise<Result>,
): Promise<Result> {
  const engine = createEngine(benchConfig(options), { imageSources: [] });
  try {
    await engine.ready;
    return await work(engine);
  } finally {
    await engine.close();
  }
}

/** Distinct for every salt, so that no prefix is shared. */
export function benchPrompt(length: number, salt: number): number[] {
  return Array.from({ length }, (_, index) => 300 + ((index * 37 + salt * 101) % (shape.vocabSize - 400)));
}

let numRequests = 0;

/** Calls `onTokens` with the number of tokens of each output; greedy, and no end-of-sequence token ends it. */
async function generate(
  engine: Engine,
  promptTokenIds: readonly number[],
  maxTokens: number,
  onTokens: (count: number) => void,
): Promise<void> {
  const request = {
    requestId: `bench-${numRequests++}`,
    prompt: { kind: "tokens" as const, tokenIds: promptTokenIds },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true }),
  };
  for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
}

/** Generated tokens per second of `concurrency` requests, counted from when every one of them decodes. */
export async function decodeTokensPerSecond(
  engine: Engine,
  concurrency: number,
  contextTokens: number,
  decodeTokens: number,
): Promise<number> {
  let numStarted = 0;
  let startMs = 0;
  let countedTokens = 0;
  let endMs = 0;
  await Promise.all(
    Array.from({ length: concurrency }, async (_, index) => {
      let isFirst = true;
      await generate(engine, benchPrompt(contextTokens, index), decodeTokens, (count) => {
        const now = performance.now();
        if (isFirst) {
          isFirst = false;
          if (++numStarted === concurrency) startMs = now;
          return;
        }
        if (numStarted === concurrency) {
          countedTokens += count;
          endMs = now;
        }
      });
    }),
  );
  return (countedTokens * 1000) / (endMs - startMs);
}

/** Prompt tokens per second of one request: time to its only token. */
export async function prefillTokensPerSecond(engine: Engine, promptTokens: number, salt: number): Promise<number> {
  const startMs = performance.now();
  await generate(engine, benchPrompt(promptTokens, 1000 + salt), 1, () => {});
  return (promptTokens * 1000) / (performance.now() - startMs);
}
