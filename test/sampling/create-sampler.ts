/** A sampler over a few rows, with the processors an engine has, and rows for it. */
import type { EngineConfig } from "../../engine/config.ts";
import { createSamplingParams } from "../../engine/sampling-params.ts";
import type { SamplingParams } from "../../engine/sampling-params.ts";
import type { LogitsProcessor } from "../../engine/sampling/logits-processor.ts";
import { MinPLogitsProcessor } from "../../engine/sampling/min-p.ts";
import { MinTokensLogitsProcessor } from "../../engine/sampling/min-tokens.ts";
import { ProcessorChain } from "../../engine/sampling/processor-chain.ts";
import { Sampler } from "../../engine/sampling/sampler.ts";
import type { SampledToken, SamplingRow } from "../../engine/sampling/sampler.ts";
import { StepLogits } from "../../engine/sampling/step-logits.ts";

export const engineConfig: EngineConfig = {
  model: "test",
  dtype: "float32",
  device: "cpu",
  deviceId: 0,
  maxModelLen: null,
  maxNumSequences: 8,
  maxNumBatchedTokens: 64,
  maxNumWaiting: 8,
  logitsProcessors: [],
  logitsProcessorPath: [],
  numThreads: 1,
  cacheFolder: "",
  imageLimits: { maxImagesPerPrompt: 1, maxImageBytes: 1, maxImagePixels: 1, fetchTimeoutMs: 1 },
};

export const eosTokenId = 2;

export interface TestRow {
  readonly logits: readonly number[];
  readonly params?: Partial<SamplingParams>;
  readonly seed?: number;
  readonly outputTokenIds?: readonly number[];
}

/** Samples one step of a new batch of these rows, with `custom` processors after the built-in ones. */
export function sampleOnce(rows: readonly TestRow[], custom: readonly LogitsProcessor[] = []): SampledToken[] {
  const vocabSize = rows[0].logits.length;
  const chain = new ProcessorChain([
    { name: "min_tokens", processor: new MinTokensLogitsProcessor(engineConfig, [eosTokenId]) },
    { name: "min_p", processor: new MinPLogitsProcessor(engineConfig) },
    ...custom.map((processor, index) => ({ name: `custom ${index}`, processor })),
  ]);
  const logits = new StepLogits(rows.length, vocabSize);
  logits.numRequests = rows.length;
  const samplingRows = rows.map(({ params, seed, outputTokenIds }): SamplingRow => ({
    samplingParams: createSamplingParams(params),
    seed: seed ?? 0,
    outputTokenIds: outputTokenIds ?? [],
  }));
  rows.forEach((row, index) => logits.row(index).set(row.logits));
  chain.updateState({
    batchSize: rows.length,
    removed: [],
    added: samplingRows.map(({ samplingParams, outputTokenIds }, index) => ({
      index,
      params: samplingParams,
      promptTokenIds: [],
      outputTokenIds,
    })),
    moved: [],
  });
  return new Sampler(chain, rows.length, vocabSize).sample(logits, samplingRows);
}
