/** Answers with drafts against answers without: the same tokens, in both forms of the KV cache. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SpeculativeConfig } from "../../../engine/contract/speculative-config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { planSlotBlocksOf } from "../../../engine/kv/plan-slot-blocks.ts";
import type { KvLayout } from "../../../engine/models/built-model.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { writeRowProcessor } from "./row-processor.ts";
import type { RowProcessor } from "./row-processor.ts";

/** Matches of one token, so that many drafts are wrong at some place. */
const speculativeConfig: SpeculativeConfig = {
  method: "ngram",
  numSpeculativeTokens: 4,
  promptLookupMax: 3,
  promptLookupMin: 1,
};

/** Of few tokens, an answer repeats itself. */
const few = [5, 9, 17, 40];
/** Everything that the next token may depend on, in turn. */
const shapes: readonly Partial<SamplingParams>[] = [
  { temperature: 0 },
  { temperature: 0, allowedTokenIds: few.slice(0, 2), logprobs: 2 },
  { temperature: 1, allowedTokenIds: few, logprobs: 1 },
  { temperature: 0.6, allowedTokenIds: few, frequencyPenalty: 0.3, repetitionPenalty: 1.1, presencePenalty: 0.2 },
  { temperature: 0, allowedTokenIds: few, stopTokenIds: [40], minTokens: 20 },
  { temperature: 0.7, topP: 0.9, minP: 0.01, topK: 3, logitBias: { 5: 2, 9: 2 }, promptLogprobs: 1 },
  { temperature: 0, allowedTokenIds: few, repetitionDetection: { maxPatternSize: 3, minPatternSize: 1, minCount: 9 } },
  { temperature: 1, allowedTokenIds: few, extraArgs: { ngram_size: 6, window_size: 40 } },
];

/** Steers by the number of times it was asked, which is the number of tokens if each is sampled once. */
const counting: RowProcessor = {
  name: "Counting",
  keep: `
    const { period } = extraArgs;
    return period === undefined ? undefined : { period, outputTokenIds, numCalls: outputTokenIds.length };`,
  steer: `
    if (row.outputTokenIds.length !== row.numCalls) throw new Error("a token was sampled twice, or not at all");
    logits.row(index).fill(-Infinity)[3 + (row.numCalls++ % row.period)] = 0;`,
};

type GoldenName = Parameters<typeof buildGoldenModel>[0];
const slots: KvLayout = { kind: "slots" };
const paged: KvLayout = { kind: "paged", blockSize: 8 };
const cases: readonly (readonly [name: GoldenName, kvLayout: KvLayout])[] = [
  ["llama", slots],
  ["llama", paged],
  // A sliding window of 20 tokens.
  ["mistral", slots],
  ["mistral", paged],
  // Experts, each of which computes other tokens of a draft.
  ["qwen3-moe", slots],
  ["qwen3-moe", paged],
  // Pictures.
  ["llava-default", slots],
  ["llava-default", paged],
];

describe.for(cases)("%s with %o", ([name, kvLayout]) => {
  let folder: TemporaryFolder;
  let golden: GoldenModel;
  let processor: string;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
    golden = await buildGoldenModel(name, folder.path, "float32", kvLayout);
    processor = await writeRowProcessor(folder.path, counting);
  });

  afterAll(() => folder[Symbol.asyncDispose]());

  const createEngine = (overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
    SteppedEngine.create(createWorkerOptions(golden.model, overrides));

  function requestOf(index: number, params: Partial<SamplingParams> = {}): EngineRequest {
    const shape = { maxTokens: 30 + (index % 5) * 7, ignoreEos: true, ...shapes[index % shapes.length], ...params };
    return goldenRequest(`${index}`, golden.cases[index % golden.cases.length]!, golden.model, shape, 70 + index);
  }

  /** Everything that a caller sees of the request. A run of several tokens rounds logprobs differently. */
  function answerOf(engine: SteppedEngine, requestId: string, close = (logprob: number): unknown => logprob): unknown {
    const { tokenIds, outputs } = engine.generations.get(requestId)!;
    return {
      tokenIds,
      tokensOfOutputs: outputs.map((output) => output.tokenIds.length),
      finishReason: outputs.at(-1)?.finishReason,
      stopReason: outputs.at(-1)?.stopReason,
      logprobs: outputs.map(({ logprobs }) =>
        logprobs?.map(({ sampled, top }) => [close(sampled.logprob), top.length]),
      ),
      promptLogprobs: outputs.map(({ promptLogprobs }) => promptLogprobs?.length ?? null),
    };
  }

  function expectSameAnswers(engine: SteppedEngine, other: SteppedEngine): void {
    expect([...engine.generations.keys()]).toEqual([...other.generations.keys()]);
    for (const requestId of engine.generations.keys()) {
      const expected = answerOf(other, requestId, (logprob): unknown => expect.closeTo(logprob, 3));
      expect(answerOf(engine, requestId)).toEqual(expected);
    }
  }

  function expectDrafts({ stats }: SteppedEngine): void {
    const { numDrafts, numDraftTokens, numAcceptedTokens, numAcceptedPerPosition } = stats.drafts;
    expect(numAcceptedTokens).toBeGreaterThan(0);
    expect(numDraftTokens - numAcceptedTokens).toBeGreaterThan(0);
    expect(numAcceptedPerPosition.reduce((sum, count) => sum + count)).toBe(numAcceptedTokens);
    expect(numAcceptedPerPosition[0]).toBeLessThanOrEqual(numDrafts);
    expect(stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
  }

  test.for([1, 2, 3])("gives the answers of an engine without drafts, %i at once", async (maxNumSequences) => {
    using without = await createEngine({ maxNumSequences });
    using drafting = await createEngine({ maxNumSequences, speculativeConfig });
    for (const engine of [without, drafting]) {
      for (let index = 0; index < 12; index++) {
        engine.add(requestOf(index));
        for (let steps = 0; steps < index; steps++) engine.step();
      }
      await engine.runToEnd();
    }
    expectSameAnswers(drafting, without);
    expectDrafts(drafting);
    expect(without.stats.drafts.numDrafts).toBe(0);
  });

  test("does not let a rejected token into a prefix that a later prompt reuses", async () => {
    using drafting = await createEngine({ maxNumSequences: 2, speculativeConfig });
    using fresh = await createEngine({ maxNumSequences: 2, enablePrefixCaching: false });
    const nextTurn = (engine: SteppedEngine, first: EngineRequest): EngineRequest => {
      const tokenIds = engine.tokensOf(first.requestId);
      // What the draft may have had instead: the tokens after an earlier occurrence of the last one.
      const promptTokenIds = [...first.promptTokenIds, ...tokenIds, ...tokenIds.slice(3, 9)];
      return { ...first, requestId: `${first.requestId} again`, promptTokenIds };
    };
    for (const index of [1, 2, 3, 4, 6]) {
      for (const engine of [drafting, fresh]) {
        engine.add(requestOf(index, { maxTokens: 25 + index }));
        await engine.runToEnd();
        engine.add(nextTurn(engine, requestOf(index, { maxTokens: 12, minTokens: 0 })));
        await engine.runToEnd();
      }
    }
    expectSameAnswers(drafting, fresh);
    expect(drafting.stats.numPrefixCacheHits).toBeGreaterThan(0);
    expectDrafts(drafting);
  });

  test("samples every token once, also for a processor of one's own", async () => {
    using engine = await createEngine({
      speculativeConfig,
      logitsProcessors: [{ className: processor, options: {} }],
    });
    for (let period = 1; period < 8; period++) {
      engine.add(requestOf(0, { maxTokens: 30, extraArgs: { period } }));
      await engine.runToEnd();
      expect(engine.errorOf("0")).toBeNull();
      expect(engine.tokensOf("0")).toEqual(Array.from({ length: 30 }, (_, index) => 3 + (index % period)));
    }
    expect(engine.stats.drafts.numAcceptedTokens).toBeGreaterThan(100);
  });

  test("drafts for a request that asks for it, and not for one that declines", async () => {
    using byDefault = await createEngine({ speculativeConfig });
    using byRequest = await createEngine();
    byDefault.add(requestOf(1, { extraArgs: { prompt_lookup_num_tokens: 0 } }));
    byRequest.add(requestOf(1, { extraArgs: { prompt_lookup_num_tokens: 3 } }));
    await byDefault.runToEnd();
    await byRequest.runToEnd();
    expect(byDefault.stats.drafts.numDrafts).toBe(0);
    expect(byRequest.stats.drafts.numAcceptedTokens).toBeGreaterThan(0);
    expect(byRequest.stats.drafts.numAcceptedPerPosition).toHaveLength(3);
    expectSameAnswers(byRequest, byDefault);
  });

  /** The least memory in which two slots share blocks. */
  function scarceMemory(): Partial<EngineConfig> {
    if (kvLayout.kind === "paged") return { numBlocks: 512 / kvLayout.blockSize + 1 };
    const { config, maxModelLen } = createWorkerOptions(golden.model, { maxNumSequences: 2 });
    for (let kvCacheMemoryBytes = 4096; ; kvCacheMemoryBytes += 4096) {
      const plan = planSlotBlocksOf({ ...config, kvCacheMemoryBytes }, golden.model.decoder, maxModelLen);
      if (plan?.numSlots === 2) return { kvCacheMemoryBytes };
    }
  }

  test("gives the answers of ample memory when sequences with drafts are preempted", async () => {
    using ample = await createEngine({ maxNumSequences: 2 });
    using scarce = await createEngine({ maxNumSequences: 2, speculativeConfig, ...scarceMemory() });
    for (const engine of [ample, scarce]) {
      await engine.encodeImages(golden);
      for (const index of [1, 2, 3, 6]) engine.add(requestOf(index, { maxTokens: 330, repetitionDetection: null }));
      await engine.runToEnd();
    }
    expectSameAnswers(scarce, ample);
    expect(scarce.stats.numPreemptions).toBeGreaterThan(0);
    expectDrafts(scarce);
  });

  test("frees everything when a request is aborted between the tokens of a draft", async () => {
    using engine = await createEngine({ maxNumSequences: 2, speculativeConfig });
    using without = await createEngine({ maxNumSequences: 2 });
    await engine.encodeImages(golden);
    for (let numSteps = 5; numSteps < 25; numSteps++) {
      engine.add(requestOf(1, { maxTokens: 60 }));
      for (let step = 0; step < numSteps; step++) engine.step();
      engine.abort("1");
      await engine.runToEnd();
      expect(engine.generations.get("1")!.outputs.at(-1)?.finishReason).toBe("abort");
      expect(engine.stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
    }
    expect(engine.stats.drafts.numAcceptedTokens).toBeGreaterThan(0);
    for (const each of [engine, without]) {
      each.add(requestOf(1));
      await each.runToEnd();
    }
    expectSameAnswers(engine, without);
  });
});
