/** Tokens per second of the whole engine: requests in, text deltas out, through both threads. */
import { performance } from "node:perf_hooks";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, EngineConfig, ImageSource } from "../../engine/index.ts";
import { shape } from "./shape.ts";

export interface EngineBenchOptions {
  readonly model: string;
  readonly dtype: EngineConfig["dtype"];
  readonly numThreads: number;
  readonly cacheFolder: string;
  /** Default: the engine's. */
  readonly promptDtype?: EngineConfig["promptDtype"];
}

export function benchConfig(options: EngineBenchOptions): EngineConfig {
  return {
    model: options.model,
    dtype: options.dtype,
    ...(options.promptDtype !== undefined && { promptDtype: options.promptDtype }),
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

export function withEngine<Result>(
  options: EngineBenchOptions,
  work: (engine: Engine) => Promise<Result>,
): Promise<Result> {
  return withEngineOf(benchConfig(options), work);
}

export async function withEngineOf<Result>(
  config: EngineConfig,
  work: (engine: Engine) => Promise<Result>,
  imageSources: readonly ImageSource[] = [],
): Promise<Result> {
  const engine = createEngine(config, { imageSources });
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

/** Calls `onTokens` with the tokens of each output. Greedy, and not ended by an end-of-sequence token. */
async function generate(
  engine: Engine,
  promptTokenIds: readonly number[],
  maxTokens: number,
  onTokens: (tokenIds: readonly number[]) => void,
  adapter: string | null = null,
): Promise<void> {
  const request = {
    ...(adapter !== null && { adapter }),
    requestId: `bench-${numRequests++}`,
    prompt: { kind: "tokens" as const, tokenIds: promptTokenIds },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true }),
  };
  for await (const output of engine.generate(request)) onTokens(output.tokenIds);
}

interface Arrival {
  readonly atMs: number;
  readonly numTokens: number;
}

/**
 * Generated tokens per second of `concurrency` requests while all of them decode: between the first token of the
 * request that started last and the last token of the one that ended first. Each request's tokens are counted between
 * two of its own arrivals, so that no step counts partially.
 *
 * @param adapterOf The adapter that each request chooses. Default: none.
 * @throws Error if `decodeTokens` is too small for such a period to exist.
 */
export async function decodeTokensPerSecond(
  engine: Engine,
  concurrency: number,
  contextTokens: number,
  decodeTokens: number,
  adapterOf: (index: number) => string | null = () => null,
): Promise<number> {
  const timelines = await Promise.all(
    Array.from({ length: concurrency }, async (_, index) => {
      const arrivals: Arrival[] = [];
      const record = (tokenIds: readonly number[]): void => {
        arrivals.push({ atMs: performance.now(), numTokens: tokenIds.length });
      };
      await generate(engine, benchPrompt(contextTokens, index), decodeTokens, record, adapterOf(index));
      return arrivals;
    }),
  );
  const startMs = Math.max(...timelines.map((arrivals) => arrivals[0]!.atMs));
  const endMs = Math.min(...timelines.map((arrivals) => arrivals.at(-1)!.atMs));
  return timelines.reduce((sum, arrivals) => sum + speedBetween(arrivals, startMs, endMs), 0);
}

function speedBetween(arrivals: readonly Arrival[], startMs: number, endMs: number): number {
  const [first, ...rest] = arrivals.filter(({ atMs }) => atMs >= startMs && atMs <= endMs);
  const last = rest.at(-1);
  if (last === undefined) throw new Error("The first request ended before the last one had started.");
  return (rest.reduce((sum, { numTokens }) => sum + numTokens, 0) * 1000) / (last.atMs - first!.atMs);
}

/** Prompt tokens per second of one request: time to its only token. */
export async function prefillTokensPerSecond(
  engine: Engine,
  promptTokens: number,
  salt: number,
  adapter: string | null = null,
): Promise<number> {
  const startMs = performance.now();
  await generate(engine, benchPrompt(promptTokens, 1000 + salt), 1, () => {}, adapter);
  return (promptTokens * 1000) / (performance.now() - startMs);
}

export async function greedyTokenIds(
  engine: Engine,
  promptTokenIds: readonly number[],
  maxTokens: number,
): Promise<number[]> {
  const generated: number[] = [];
  await generate(engine, promptTokenIds, maxTokens, (tokenIds) => generated.push(...tokenIds));
  return generated;
}
