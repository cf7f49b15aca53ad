/**
 * The scheduler over a paged KV cache. A small stand-in for a model keeps one number per token position in its blocks,
 * which depends on everything before it, and chooses the next token by it. Wrong reuse changes the answers.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import type { StepResult } from "../../../engine/core/step-results.ts";
import { BlockKvManager } from "../../../engine/kv/block-kv-manager.ts";
import { SCRATCH_BLOCK_ID } from "../../../engine/kv/block-pool.ts";
import { blockCapacity } from "../../../engine/kv/plan-blocks.ts";
import { isLastChunk } from "../../../engine/scheduler/scheduler-output.ts";
import { Scheduler } from "../../../engine/scheduler/scheduler.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import type { EngineCoreOutput } from "../../../engine/thread/messages.ts";
import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";
import { createImage, createRequest, describeStep } from "./create-scheduler.ts";
import { OrderCheck } from "./order-check.ts";

const blockSize = 4;

interface PagedOverrides {
  readonly numBlocks?: number;
  readonly maxNumSequences?: number;
  readonly maxNumBatchedTokens?: number;
  readonly enablePrefixCaching?: boolean;
  readonly encodesInBackground?: boolean;
}

/** Mutable: a scheduler, and a model that keeps its state in the blocks. */
class PagedSimulation {
  readonly kvManager: BlockKvManager;
  readonly scheduler: Scheduler;
  readonly encoderCache = new EncoderCache(64);
  /** [numBlocks, blockSize] */
  readonly #state: Float64Array;
  readonly outputs = new Map<string, EngineCoreOutput[]>();
  /** Spans that were computed: request, first token, end token. */
  readonly computed: [string, number, number][] = [];
  /** Requests whose next run fails. */
  readonly failing = new Set<string>();
  readonly #order = new OrderCheck();

  constructor(overrides: PagedOverrides = {}) {
    const { numBlocks = 17, maxNumSequences = 4, maxNumBatchedTokens = 16, enablePrefixCaching = true } = overrides;
    this.kvManager = new BlockKvManager({
      capacity: blockCapacity(blockSize, numBlocks),
      maxNumSequences,
      enablePrefixCaching,
    });
    this.scheduler = new Scheduler({
      maxNumBatchedTokens,
      maxNumWaiting: 100,
      kvManager: this.kvManager,
      encoderCache: this.encoderCache,
      encodesInBackground: overrides.encodesInBackground,
      eosTokenIds: new Set(),
      maxModelLen: (numBlocks - 1) * blockSize,
    });
    this.#state = new Float64Array(numBlocks * blockSize).fill(Number.NaN);
  }

  add(request: EngineRequest): void {
    this.outputs.set(request.requestId, []);
    this.scheduler.add(request);
    this.#order.add(request);
  }

  abort(requestId: string): void {
    this.#record(this.scheduler.abort([requestId]));
  }

  step(): void {
    const scheduled = this.scheduler.schedule();
    this.#order.check(scheduled);
    const results = new Map<Sequence, StepResult>();
    const spans = [
      ...scheduled.decodes.map((sequence) => ({ sequence, firstToken: sequence.numComputedTokens, numTokens: 1 })),
      ...scheduled.prefills,
    ];
    for (const { imagesToEncode } of scheduled.prefills) {
      for (const { mmHash } of imagesToEncode) this.encoderCache.store(mmHash, new Float32Array(1));
    }
    this.#requireUnshared(spans);
    for (const { sequence, firstToken, numTokens } of spans) {
      this.computed.push([sequence.requestId, firstToken, firstToken + numTokens]);
      if (this.failing.delete(sequence.requestId)) {
        results.set(sequence, { kind: "failed", error: new EngineError("runtime_failed", "The run failed.") });
        continue;
      }
      const state = this.#compute(sequence, firstToken, firstToken + numTokens);
      const isEnded = !sequence.isPrefilling || isLastChunk({ sequence, firstToken, numTokens, imagesToEncode: [] });
      if (isEnded) results.set(sequence, { kind: "sampled", tokenId: state, logprobs: null, promptLogprobs: null });
    }
    this.#record(this.scheduler.update(scheduled, results));
  }

  runToEnd(maxSteps = 10_000): void {
    for (let step = 0; this.scheduler.hasUnfinished; step++) {
      if (step === maxSteps) throw new Error(`Requests are unfinished after ${maxSteps} steps.`);
      this.step();
    }
  }

  tokensOf(requestId: string): number[] {
    return this.outputs.get(requestId)!.flatMap(({ tokenIds }) => tokenIds);
  }

  /** Throws unless each block that is written to is held by the one sequence that writes. */
  #requireUnshared(
    spans: readonly { readonly sequence: Sequence; readonly firstToken: number; readonly numTokens: number }[],
  ): void {
    const tables = spans.map(({ sequence }) => sequence.blockTable);
    for (const { sequence, firstToken, numTokens } of spans) {
      const firstBlock = Math.floor(firstToken / blockSize);
      const written = sequence.blockTable.slice(firstBlock, Math.ceil((firstToken + numTokens) / blockSize));
      const isShared = written.some((blockId) => tables.filter((table) => table.includes(blockId)).length > 1);
      if (isShared || sequence.blockTable.includes(SCRATCH_BLOCK_ID)) {
        throw new Error(`Request ${sequence.requestId} writes to blocks that are not its own: ${written.join(", ")}.`);
      }
    }
  }

  #compute(sequence: Sequence, firstToken: number, endToken: number): number {
    const placeOf = (token: number): number =>
      sequence.blockTable[Math.floor(token / blockSize)]! * blockSize + (token % blockSize);
    let state = firstToken === 0 ? 1 : this.#state[placeOf(firstToken - 1)];
    for (const [index, tokenId] of sequence.tokenIdsBetween(firstToken, endToken).entries()) {
      state = nextState(state!, tokenId, sequence.images, firstToken + index);
      this.#state[placeOf(firstToken + index)] = state;
    }
    return state!;
  }

  #record(outputs: readonly EngineCoreOutput[]): void {
    for (const output of outputs) this.outputs.get(output.requestId)!.push(output);
    this.#order.drop(outputs.filter(({ finishReason }) => finishReason !== null));
  }
}

function nextState(state: number, tokenId: number, images: EngineRequest["images"], place: number): number {
  const image = images.find(
    ({ placeholder }) => place >= placeholder.offset && place < placeholder.offset + placeholder.length,
  );
  const pixel = image === undefined ? 0 : image.mmHash.charCodeAt(0) + place - image.placeholder.offset;
  return (state * 31 + tokenId * 7 + pixel + 3) % 997;
}

/** The tokens that a request gets alone, computed without any cache. */
function expectedTokens({ promptTokenIds, images, samplingParams }: EngineRequest): number[] {
  let state = 1;
  const outputTokenIds: number[] = [];
  promptTokenIds.forEach((tokenId, place) => (state = nextState(state, tokenId, images, place)));
  while (outputTokenIds.length < samplingParams.maxTokens!) {
    outputTokenIds.push(state);
    state = nextState(state, state, images, promptTokenIds.length + outputTokenIds.length - 1);
  }
  return outputTokenIds;
}

function request(requestId: string, promptTokenIds: readonly number[], maxTokens = 4): EngineRequest {
  return createRequest(requestId, { promptTokenIds, samplingParams: { maxTokens } });
}

const ascending = (length: number, from = 10): number[] => Array.from({ length }, (_, index) => from + index);

describe("shared prefixes", () => {
  test("a prompt asked again computes the part behind its complete blocks", () => {
    const simulation = new PagedSimulation();
    simulation.add(request("first", ascending(11)));
    simulation.runToEnd();
    simulation.computed.length = 0;
    simulation.add(request("again", ascending(11)));
    simulation.runToEnd();
    expect(simulation.computed[0]).toEqual(["again", 8, 11]);
    expect(simulation.tokensOf("again")).toEqual(simulation.tokensOf("first"));
    expect(simulation.outputs.get("again")![0]!.numCachedTokens).toBe(8);
    expect(simulation.scheduler.stats).toMatchObject({ numPrefixCacheQueries: 22, numPrefixCacheHits: 8 });
  });

  test("a prompt of complete blocks computes its last block, never nothing", () => {
    const simulation = new PagedSimulation();
    simulation.add(request("first", ascending(8), 1));
    simulation.runToEnd();
    simulation.computed.length = 0;
    simulation.add(request("again", ascending(8), 1));
    simulation.runToEnd();
    expect(simulation.computed).toEqual([["again", 4, 8]]);
  });

  test("the next turn of a conversation reuses the answer as well", () => {
    const simulation = new PagedSimulation();
    simulation.add(request("first", ascending(6), 7));
    simulation.runToEnd();
    simulation.computed.length = 0;
    const turn = [...ascending(6), ...simulation.tokensOf("first"), 90, 91];
    simulation.add(request("next", turn));
    simulation.runToEnd();
    expect(simulation.computed[0]).toEqual(["next", 12, 15]);
    expect(simulation.tokensOf("next")).toEqual(expectedTokens(request("next", turn)));
  });

  test("requests with the prefix of one in progress wait for it, and then share its blocks", () => {
    const simulation = new PagedSimulation({ maxNumBatchedTokens: 8 });
    for (const name of ["a", "b", "c"]) simulation.add(request(name, ascending(14)));
    simulation.step();
    expect(simulation.scheduler.stats).toMatchObject({ numRequestsRunning: 1, numRequestsWaiting: 2 });
    simulation.runToEnd();
    expect(simulation.computed.filter(([, firstToken]) => firstToken === 0)).toEqual([["a", 0, 8]]);
    for (const name of ["b", "c"]) expect(simulation.tokensOf(name)).toEqual(simulation.tokensOf("a"));
  });

  test("the prefix of a sequence that waits for its image holds up no other request", () => {
    const { scheduler, encoderCache } = new PagedSimulation({ encodesInBackground: true, maxNumBatchedTokens: 32 });
    const about = (mmHash: string) => ({
      promptTokenIds: ascending(10),
      images: [createImage(mmHash, 8, 1)],
    });
    scheduler.add(createRequest("cat", about("cat")));
    scheduler.add(createRequest("same cat", about("cat")));
    scheduler.add(createRequest("text", { promptTokenIds: [...ascending(8), 50] }));
    scheduler.add(createRequest("other", { promptTokenIds: [70, 71, 72] }));
    expect(describeStep(scheduler.schedule())).toEqual(["text: 9", "other: 3"]);
    expect(scheduler.stats).toMatchObject({ numRequestsRunning: 3, numRequestsWaiting: 1 });
    encoderCache.tryStore("cat", 1, new Float32Array(1));
  });

  test("no request waits for an aborted one", () => {
    const simulation = new PagedSimulation({ maxNumBatchedTokens: 4 });
    for (const name of ["a", "b"]) simulation.add(request(name, ascending(14)));
    simulation.step();
    simulation.abort("a");
    simulation.runToEnd();
    expect(simulation.tokensOf("b")).toEqual(expectedTokens(request("b", ascending(14))));
  });

  test("salts and images keep prompts apart", () => {
    const simulation = new PagedSimulation();
    const plain = { promptTokenIds: ascending(9), samplingParams: { maxTokens: 3 } };
    const prompts = [
      createRequest("plain", plain),
      createRequest("salted", { ...plain, cacheSalt: "tenant" }),
      createRequest("cat", { ...plain, images: [createImage("cat", 1, 3)] }),
      createRequest("dog", { ...plain, images: [createImage("dog", 1, 3)] }),
    ];
    for (const each of prompts) {
      simulation.add(each);
      simulation.runToEnd();
      expect(simulation.tokensOf(each.requestId)).toEqual(expectedTokens(each));
      expect(simulation.outputs.get(each.requestId)![0]!.numCachedTokens).toBe(0);
    }
  });

  test("nothing is reused with prefix caching off", () => {
    const simulation = new PagedSimulation({ enablePrefixCaching: false });
    for (const name of ["first", "again"]) {
      simulation.add(request(name, ascending(11)));
      simulation.runToEnd();
    }
    expect(simulation.computed.filter(([, firstToken]) => firstToken === 0)).toHaveLength(2);
  });
});

describe("a pool that is too small", () => {
  /** Four sequences of up to 24 tokens take 24 blocks; there are 9. */
  const crowded = { numBlocks: 10, maxNumBatchedTokens: 64 } as const;
  const names = ["a", "b", "c", "d"];
  const prompts = names.map((name, index) => request(name, ascending(8, 100 * index), 16));

  test("the youngest sequence is preempted, and every answer is the same", () => {
    const simulation = new PagedSimulation(crowded);
    for (const prompt of prompts) simulation.add(prompt);
    simulation.runToEnd();
    expect(simulation.scheduler.stats.numPreemptions).toBeGreaterThan(0);
    for (const prompt of prompts) expect(simulation.tokensOf(prompt.requestId)).toEqual(expectedTokens(prompt));
    const endings = simulation.computed.map(([name]) => name);
    expect(endings.lastIndexOf("a")).toBeLessThan(endings.lastIndexOf("d"));
    expect(simulation.kvManager.usage).toBe(0);
  });

  test("a preempted sequence counts its prompt and its cached tokens once", () => {
    const simulation = new PagedSimulation(crowded);
    for (const prompt of prompts) simulation.add(prompt);
    simulation.runToEnd();
    expect(simulation.scheduler.stats).toMatchObject({ numPromptTokens: 32, numGenerationTokens: 64 });
    for (const { requestId } of prompts) {
      expect(simulation.outputs.get(requestId)!.every(({ numCachedTokens }) => numCachedTokens === 0)).toBe(true);
    }
  });

  test("a request whose prompt has no room waits until there is", () => {
    const simulation = new PagedSimulation({ numBlocks: 10 });
    simulation.add(request("long", ascending(24), 8));
    simulation.add(request("also long", ascending(24, 50), 8));
    simulation.step();
    simulation.step();
    expect(simulation.scheduler.stats).toMatchObject({ numRequestsRunning: 1, numRequestsWaiting: 1 });
    simulation.runToEnd();
    expect(simulation.scheduler.stats.numPreemptions).toBe(0);
  });

  test("a sequence that is aborted while preempted gives nothing back twice", () => {
    const simulation = new PagedSimulation(crowded);
    for (const prompt of prompts) simulation.add(prompt);
    while (simulation.scheduler.stats.numPreemptions === 0) simulation.step();
    simulation.abort("d");
    simulation.runToEnd();
    expect(simulation.outputs.get("d")!.at(-1)).toMatchObject({ finishReason: "abort" });
    expect(simulation.kvManager.usage).toBe(0);
  });
});

test("requests of every kind get the tokens that each gets alone, and no block is lost", () => {
  const arrival = fc.record({
    prefix: fc.constantFrom(0, 1, 2),
    length: fc.integer({ min: 1, max: 26 }),
    maxTokens: fc.integer({ min: 1, max: 14 }),
    image: fc.option(fc.constantFrom("cat", "dog"), { freq: 3, nil: null }),
    steps: fc.nat({ max: 4 }),
    fate: fc.constantFrom("ends", "ends", "ends", "aborts", "fails"),
    salt: fc.constantFrom(null, null, "tenant"),
    priority: fc.constantFrom(0, 0, 0, -5, 1, 1000),
  });
  const limits = fc.record({
    numBlocks: fc.integer({ min: 11, max: 24 }),
    maxNumSequences: fc.integer({ min: 1, max: 6 }),
    maxNumBatchedTokens: fc.integer({ min: 6, max: 40 }),
  });
  let numPreemptions = 0;
  let numHits = 0;
  fc.assert(
    fc.property(limits, fc.array(arrival, { minLength: 1, maxLength: 14 }), (overrides, arrivals) => {
      const simulation = new PagedSimulation(overrides);
      const requests = arrivals.map(({ prefix, length, maxTokens, image, salt, priority }, index) => {
        // Prompts with the same prefix differ behind it.
        const promptTokenIds = ascending(length, prefix * 100).map((id, place) => (place > 12 ? id + index : id));
        const images = image === null || length < 6 ? [] : [createImage(image, 2, 3)];
        const samplingParams = { maxTokens };
        return createRequest(`${index}`, { promptTokenIds, images, cacheSalt: salt, priority, samplingParams });
      });
      arrivals.forEach(({ steps, fate }, index) => {
        simulation.add(requests[index]!);
        if (fate === "fails") simulation.failing.add(`${index}`);
        for (let step = 0; step < steps; step++) simulation.step();
        if (fate === "aborts") simulation.abort(`${index}`);
      });
      simulation.runToEnd();
      requests.forEach((each, index) => {
        const tokenIds = simulation.tokensOf(each.requestId);
        const isWhole = arrivals[index]!.fate === "ends";
        expect(tokenIds).toEqual(expectedTokens(each).slice(0, isWhole ? undefined : tokenIds.length));
      });
      expect(simulation.kvManager.usage).toBe(0);
      numPreemptions += simulation.scheduler.stats.numPreemptions;
      numHits += simulation.scheduler.stats.numPrefixCacheHits;
    }),
    { numRuns: 400 },
  );
  expect(numPreemptions).toBeGreaterThan(10);
  expect(numHits).toBeGreaterThan(100);
});
