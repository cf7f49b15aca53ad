/** A sampler over a few rows, with an engine's processors, and rows for it. */
import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineError } from "../../../engine/contract/errors.ts";
import type { SampledLogprobs } from "../../../engine/contract/request-output.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { AddedSequence } from "../../../engine/sampling/built-in/added-sequence.ts";
import { createBuiltInProcessors } from "../../../engine/sampling/built-in/built-in-processors.ts";
import type { LogitsProcessor } from "../../../engine/sampling/contract/logits-processor.ts";
import { CustomProcessor } from "../../../engine/sampling/custom/custom-processor.ts";
import type { Candidates } from "../../../engine/sampling/draw/candidate-draw.ts";
import { ProcessorChain } from "../../../engine/sampling/processor-chain.ts";
import { Sampler } from "../../../engine/sampling/sampler.ts";
import type { SamplingRow } from "../../../engine/sampling/sampler.ts";
import { StepLogits } from "../../../engine/sampling/step-logits.ts";
import type { DeferredLogits } from "../../../engine/sampling/step-logits.ts";
import type { CompiledGrammar } from "../../../engine/structured-output/compiled-grammar.ts";
import { GrammarLogitsProcessor } from "../../../engine/structured-output/grammar-logits-processor.ts";

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
  readonly promptTokenIds?: readonly number[];
  readonly outputTokenIds?: readonly number[];
  readonly badWordsTokenIds?: readonly (readonly number[])[];
  readonly grammar?: CompiledGrammar;
  readonly thinkingBudget?: AddedSequence["thinkingBudget"];
}

/** The result of a row: a token or an error. */
export interface TestSample {
  readonly tokenId: number | null;
  readonly logprobs: SampledLogprobs | null;
  readonly error: EngineError | null;
}

/** The engine's own processors, and `custom` ones after them. */
function createChain(vocabSize: number, custom: readonly (() => LogitsProcessor)[] = []): ProcessorChain {
  const grammars = new GrammarLogitsProcessor(engineConfig, {
    vocabSize,
    grammarOf: (request) => (request as AddedSequence).grammar,
  });
  return new ProcessorChain(
    createBuiltInProcessors(engineConfig, [eosTokenId], grammars),
    custom.map((create, index) => new CustomProcessor(`custom ${index}`, create)),
  );
}

/** Samples one step of a new batch of these rows. */
export function sampleOnce(rows: readonly TestRow[], custom: readonly (() => LogitsProcessor)[] = []): TestSample[] {
  return sample(rows, custom, (logits) => rows.forEach((row, index) => logits.row(index).set(row.logits)));
}

interface DeferredSamples {
  readonly samples: TestSample[];
  /** Rows that were read whole. */
  readonly readRows: ReadonlySet<number>;
  /** Copies that it took. */
  readonly numCopies: number;
}

/** The same, of rows that are deferred with so many candidates each; and which of the rows were read. */
export function sampleDeferred(
  rows: readonly TestRow[],
  numCandidates: number,
  custom: readonly (() => LogitsProcessor)[] = [],
): DeferredSamples {
  const deferred: DeferredLogits = {
    candidatesOf: (index) => candidatesOf(rows[index]!, numCandidates),
    read: (index, target) => {
      const { length } = rows[index]!.logits;
      for (let start = 0; start < target.length; start += length)
        target.set(rows[index + start / length]!.logits, start);
    },
  };
  return sampleFrom(rows, deferred, custom);
}

/** The same, of rows whose logits are elsewhere; those of `rows` are not used. */
export function sampleFrom(
  rows: readonly TestRow[],
  deferred: DeferredLogits,
  custom: readonly (() => LogitsProcessor)[] = [],
): DeferredSamples {
  const readRows = new Set<number>();
  let numCopies = 0;
  const samples = sample(rows, custom, (logits) =>
    logits.defer(0, rows.length, {
      ...deferred,
      read: (index, target) => {
        numCopies++;
        for (let row = 0; row < target.length / logits.vocabSize; row++) readRows.add(index + row);
        deferred.read(index, target);
      },
    }),
  );
  return { samples, readRows, numCopies };
}

function candidatesOf({ logits, params }: TestRow, numCandidates: number): Candidates {
  const { temperature } = createSamplingParams(params);
  const row = Float32Array.from(logits);
  // Highest ids first: no device has to order equal logits by id.
  const order = Array.from(row.keys()).sort((left, right) => row[right]! - row[left]! || right - left);
  const tokenIds = Int32Array.from(order.slice(0, numCandidates));
  const values = Float32Array.from(tokenIds, (tokenId) => row[tokenId]!);
  const scale = temperature === 0 ? 1 : Math.fround(1 / temperature);
  const mass = row.reduce((sum, logit) => sum + Math.exp(Math.fround(logit - values[0]!) * scale), 0);
  return { values, tokenIds, mass: Math.fround(mass), isWholeRow: numCandidates >= row.length };
}

function sample(
  rows: readonly TestRow[],
  custom: readonly (() => LogitsProcessor)[],
  fill: (logits: StepLogits) => void,
): TestSample[] {
  const vocabSize = rows[0]!.logits.length;
  const chain = createChain(vocabSize, custom);
  const logits = new StepLogits(rows.length, vocabSize);
  logits.numRequests = rows.length;
  fill(logits);
  const added = rows.map(toAdded);
  chain.updateState({ batchSize: rows.length, removed: [], added, moved: [] });
  const samplingRows = added.map(({ params, promptTokenIds, outputTokenIds }, index): SamplingRow => ({
    samplingParams: params,
    seed: rows[index]!.seed ?? 0,
    promptTokenIds,
    outputTokenIds,
  }));
  return new Sampler(chain, logits)
    .sample(samplingRows)
    .map((row) =>
      row.kind === "sampled"
        ? { tokenId: row.tokenId, logprobs: row.logprobs, error: null }
        : { tokenId: null, logprobs: null, error: row.error },
    );
}

function toAdded(row: TestRow, index: number): AddedSequence {
  return {
    index,
    params: createSamplingParams(row.params),
    promptTokenIds: row.promptTokenIds ?? [],
    outputTokenIds: row.outputTokenIds ?? [],
    badWordsTokenIds: row.badWordsTokenIds ?? [],
    grammar: row.grammar ?? null,
    thinkingBudget: row.thinkingBudget,
  };
}
