/** The scheduler over a paged KV cache: shared prefixes, preemption, and everything together. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { createImage, createRequest, describeStep } from "./create-scheduler.ts";
import { expectedTokens, PagedSimulation } from "./paged-simulation.ts";

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
    numChoices: fc.constantFrom(1, 1, 1, 2, 3),
    steps: fc.nat({ max: 4 }),
    // What happens to the first choice. With "no memory", the device has no memory for a whole step.
    fate: fc.constantFrom("ends", "ends", "ends", "aborts", "fails", "no memory"),
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
  let numWithoutMemory = 0;
  fc.assert(
    fc.property(limits, fc.array(arrival, { minLength: 1, maxLength: 14 }), (overrides, arrivals) => {
      const simulation = new PagedSimulation(overrides);
      const requests = arrivals.map(({ prefix, length, maxTokens, image, numChoices, salt, priority }, index) => {
        // Prompts with the same prefix differ behind it.
        const promptTokenIds = ascending(length, prefix * 100).map((id, place) => (place > 12 ? id + index : id));
        const images = image === null || length < 6 ? [] : [createImage(image, 2, 3)];
        const shared = { promptTokenIds, images, cacheSalt: salt, priority, samplingParams: { maxTokens } };
        return Array.from({ length: numChoices }, (_, seed) => createRequest(`${index}.${seed}`, { ...shared, seed }));
      });
      arrivals.forEach(({ steps, fate }, index) => {
        for (const choice of requests[index]!) simulation.add(choice);
        if (fate === "fails") simulation.failing.add(`${index}.0`);
        if (fate === "no memory") simulation.numStepsWithoutMemory++;
        for (let step = 0; step < steps; step++) simulation.step();
        if (fate === "aborts") simulation.abort(`${index}.0`);
      });
      simulation.runToEnd();
      requests.forEach((choices, index) => {
        for (const each of choices) {
          const tokenIds = simulation.tokensOf(each.requestId);
          const isCut = each === choices[0] && ["aborts", "fails"].includes(arrivals[index]!.fate);
          expect(tokenIds).toEqual(expectedTokens(each).slice(0, isCut ? tokenIds.length : undefined));
        }
      });
      expect(simulation.kvManager.usage).toBe(0);
      numPreemptions += simulation.scheduler.stats.numPreemptions;
      numHits += simulation.scheduler.stats.numPrefixCacheHits;
      numWithoutMemory += simulation.numPreemptedWithoutMemory;
    }),
    { numRuns: 400 },
  );
  expect(numPreemptions - numWithoutMemory).toBeGreaterThan(10);
  expect(numWithoutMemory).toBeGreaterThan(10);
  expect(numHits).toBeGreaterThan(100);
});
