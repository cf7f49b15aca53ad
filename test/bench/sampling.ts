/** Cost of sampling in a decode step of 32 sequences. */
import { performance } from "node:perf_hooks";

import { createSamplingParams, LogitsProcessor } from "../../engine/index.ts";
import type { BatchUpdate, Logits, SamplingParams } from "../../engine/index.ts";
import type { AddedSequence } from "../../engine/sampling/built-in/added-sequence.ts";
import { createBuiltInProcessors } from "../../engine/sampling/built-in/built-in-processors.ts";
import { RowStates } from "../../engine/sampling/contract/row-states.ts";
import { CustomProcessor } from "../../engine/sampling/custom/custom-processor.ts";
import { ProcessorChain } from "../../engine/sampling/processor-chain.ts";
import { Sampler } from "../../engine/sampling/sampler.ts";
import type { SamplingRow } from "../../engine/sampling/sampler.ts";
import { StepLogits } from "../../engine/sampling/step-logits.ts";
import { GrammarLogitsProcessor } from "../../engine/structured-output/grammar-logits-processor.ts";
import { BareLoop } from "./bare-loop.ts";
import { benchConfig, benchPrompt } from "./engine-throughput.ts";
import { limitFigure, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { contextTokens, decodeTokens, engineOptions } from "./settings.ts";
import { fillRandom, shape } from "./shape.ts";

const numRows = 32;
const vocabSizes = [shape.vocabSize, 151_936] as const;
const numWarmUpSteps = 10;
const numSteps = 30;
const outputTokens = 64;

/** Leaves a request that names a token only that token. */
class TargetToken extends LogitsProcessor {
  readonly #targets = new RowStates<number>();

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#targets.update(batchUpdate, ({ params }) => {
      const target = params.extraArgs.target_token;
      return typeof target === "number" ? target : undefined;
    });
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, target] of this.#targets.entries()) {
      const row = logits.row(rowIndex);
      const kept = row[target]!;
      row.fill(-Infinity);
      row[target] = kept;
    }
    return logits;
  }
}

export interface Scenario {
  readonly name: string;
  /** Length of each output before the first step; default `outputTokens`. */
  readonly numOutputTokens?: number;
  readonly paramsOf: (rowIndex: number) => Partial<SamplingParams>;
  readonly hasCustom?: boolean;
  /** Maximum in per cent of a decode step. */
  readonly limit?: number;
}

const everySecondToken = Array.from({ length: shape.vocabSize / 2 }, (_, index) => 2 * index);

const scenarios: readonly Scenario[] = [
  { name: "greedy", paramsOf: () => ({ temperature: 0 }), limit: 5 },
  { name: "temperature alone", paramsOf: () => ({}) },
  { name: "top-p 0.9", paramsOf: () => ({ topP: 0.9 }), limit: 15 },
  { name: "min-p 0.05", paramsOf: () => ({ minP: 0.05 }) },
  { name: "greedy with 5 logprobs", paramsOf: () => ({ temperature: 0, logprobs: 5 }) },
  {
    name: "all built-ins",
    paramsOf: () => ({
      temperature: 0.8,
      topP: 0.9,
      topK: 50,
      minP: 0.05,
      minTokens: 2 * outputTokens,
      repetitionPenalty: 1.1,
      presencePenalty: 0.5,
      frequencyPenalty: 0.2,
      logitBias: { 500: 5, 501: -5, 502: 1 },
      badWords: ["one", "two"],
      allowedTokenIds: everySecondToken,
      logprobs: 5,
    }),
  },
  { name: "greedy, custom that nobody uses", paramsOf: () => ({ temperature: 0 }), hasCustom: true },
  {
    name: "greedy, custom on one row",
    paramsOf: (rowIndex) => ({ temperature: 0, ...(rowIndex === 7 && { extraArgs: { target_token: 3 } }) }),
    hasCustom: true,
  },
];

/** Milliseconds of the fastest step, which excludes other work of the machine. */
export function sampleMs(vocabSize: number, scenario: Scenario): number {
  const { paramsOf, hasCustom = false, numOutputTokens = outputTokens } = scenario;
  const config = benchConfig(engineOptions("int8"));
  const grammars = new GrammarLogitsProcessor(config, { vocabSize, grammarOf: () => null });
  const custom = hasCustom ? [new CustomProcessor("TargetToken", () => new TargetToken(config, "cpu", {}))] : [];
  const chain = new ProcessorChain(createBuiltInProcessors(config, [0], grammars), custom);
  const logits = new StepLogits(numRows, vocabSize);
  logits.numRequests = numRows;
  const fresh = new Float32Array(numRows * vocabSize);
  fillRandom(fresh, 2.5, 1);
  const rows = Array.from({ length: numRows }, (_, rowIndex) =>
    createRow(rowIndex, paramsOf(rowIndex), numOutputTokens),
  );
  const added = rows.map(({ samplingParams, promptTokenIds, outputTokenIds }, index): AddedSequence => {
    const badWordsTokenIds = samplingParams.badWords.length > 0 ? [[5, 6], [7]] : [];
    return { index, params: samplingParams, promptTokenIds, outputTokenIds, badWordsTokenIds, grammar: null };
  });
  chain.updateState({ batchSize: numRows, removed: [], added, moved: [] });
  const sampler = new Sampler(chain, logits);
  let fastestMs = Infinity;
  for (let step = -numWarmUpSteps; step < numSteps; step++) {
    logits.data.set(fresh);
    for (const { outputTokenIds } of rows) (outputTokenIds as number[]).push(300 + ((step * step) % 50));
    const startMs = performance.now();
    chain.updateState(null);
    sampler.sample(rows);
    const tookMs = performance.now() - startMs;
    if (step >= 0 && tookMs < fastestMs) fastestMs = tookMs;
  }
  return fastestMs;
}

function createRow(rowIndex: number, params: Partial<SamplingParams>, numOutputTokens: number): SamplingRow {
  return {
    samplingParams: createSamplingParams(params),
    seed: rowIndex,
    promptTokenIds: benchPrompt(contextTokens, rowIndex),
    outputTokenIds: benchPrompt(numOutputTokens, rowIndex + 100),
  };
}

/** Fractions of an int8 step of the whole shape, whose vocabulary is the smaller one. */
export async function benchSampling(rounds: number): Promise<Figure[]> {
  const stepMs: number[] = [];
  const costs = vocabSizes.flatMap((vocabSize) =>
    scenarios.map((scenario) => ({ vocabSize, scenario, ms: [] as number[] })),
  );
  for (let round = 0; round < rounds; round++) {
    using loop = await BareLoop.create(engineOptions("int8"));
    stepMs.push((numRows * 1000) / loop.decodeTokensPerSecond(numRows, contextTokens, decodeTokens));
    for (const { vocabSize, scenario, ms } of costs) ms.push(sampleMs(vocabSize, scenario));
    reportProgress(
      `sampling, round ${round + 1} of ${rounds}: a step without it takes ${stepMs[round]!.toFixed(1)} ms`,
    );
  }
  const figures = [plainFigure(`int8 decode step, ${numRows} at once`, "ms", stepMs)];
  for (const { vocabSize, scenario, ms } of costs) {
    const name = `${scenario.name}, vocabulary ${vocabSize}`;
    figures.push(plainFigure(name, "ms", ms));
    if (scenario.limit === undefined || vocabSize !== shape.vocabSize) continue;
    const values = ms.map((sampling, round) => (100 * sampling) / stepMs[round]!);
    figures.push(
      limitFigure({ name: `${name}, share`, unit: "% of a step", values, comparison: "<=", limit: scenario.limit }),
    );
  }
  return figures;
}
