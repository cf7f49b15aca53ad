import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { embeddingsField } from "../../../engine/multimodal/processed-item.ts";
import {
  createImage,
  createRequest,
  createScheduler,
  describeStep,
  eosTokenId,
  resultsOf,
} from "./create-scheduler.ts";
import type { RequestOverrides, SchedulerParts } from "./create-scheduler.ts";

function step({ scheduler, encoderCache }: SchedulerParts, tokenId = 7): string[] {
  const scheduled = scheduler.schedule();
  const description = describeStep(scheduled);
  scheduler.update(scheduled, resultsOf(scheduled, tokenId, encoderCache));
  return description;
}

/** Outputs of the first step that gives the request's sequence a token. */
function firstOutputs(parts: SchedulerParts, tokenId: number) {
  const scheduled = parts.scheduler.schedule();
  return parts.scheduler.update(scheduled, resultsOf(scheduled, tokenId, parts.encoderCache));
}

describe("the token budget", () => {
  test("a prompt longer than the budget is computed in chunks", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 16 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 40 }));
    expect([step(parts), step(parts), step(parts), step(parts)]).toEqual([["a: 16"], ["a: 16"], ["a: 8"], ["a: 1"]]);
  });

  test("decoding sequences come first, then prompts in progress, then new ones", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 10 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 3 }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 12 }));
    parts.scheduler.add(createRequest("c", { numPromptTokens: 6 }));
    expect(step(parts)).toEqual(["a: 3", "b: 7"]);
    expect(step(parts)).toEqual(["a: 1", "b: 5", "c: 4"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 2"]);
  });

  test("a step with enough prompt tokens takes no further prompt", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 16, enoughPromptTokens: 6 });
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId, { numPromptTokens: 5 }));
    parts.scheduler.add(createRequest("d", { numPromptTokens: 20 }));
    expect(step(parts)).toEqual(["a: 5", "b: 5"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 5", "d: 9"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 1", "d: 11"]);
  });

  test("a token of a prompt whose logprobs are wanted counts eight times", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 20 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 5, samplingParams: { promptLogprobs: 1 } }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 6 }));
    expect([step(parts), step(parts)]).toEqual([["a: 3"], ["a: 2", "b: 4"]]);
    expect(step(parts)).toEqual(["a: 1", "b: 2"]);
  });

  test("a step may be too small for a token whose logprobs are wanted", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 4 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 2, samplingParams: { promptLogprobs: 1 } }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 2 }));
    expect([step(parts), step(parts), step(parts)]).toEqual([["a: 1"], ["a: 1"], ["a: 1", "b: 2"]]);
  });

  test("no more sequences run than there are slots", () => {
    const parts = createScheduler({ numSlots: 2 });
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId));
    expect(step(parts)).toEqual(["a: 4", "b: 4"]);
    expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 2, numRequestsWaiting: 1 });
  });
});

describe("late admission", () => {
  test("fills the rest of the budget, and drops chunks of sequences that were aborted", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 12 });
    const { scheduler } = parts;
    scheduler.add(createRequest("a"));
    step(parts);
    scheduler.add(createRequest("b", { numPromptTokens: 7 }));
    const scheduled = scheduler.schedule();
    expect(describeStep(scheduled)).toEqual(["a: 1", "b: 7"]);
    scheduler.abort(["b"]);
    scheduler.add(createRequest("c", { numPromptTokens: 9 }));
    const late = scheduler.admitLate(scheduled);
    // The tokens of "b" are gone from the step, not from its budget.
    expect(describeStep(late)).toEqual(["a: 1", "c: 4"]);
    scheduler.update(late, resultsOf(late));
    expect(step(parts)).toEqual(["a: 1", "c: 5"]);
  });

  test("leaves the rows of decodes that were aborted", () => {
    const parts = createScheduler({ numSlots: 2 });
    const { scheduler } = parts;
    for (const requestId of ["a", "b"]) scheduler.add(createRequest(requestId));
    step(parts);
    const scheduled = scheduler.schedule();
    scheduler.abort(["a"]);
    scheduler.add(createRequest("c"));
    const late = scheduler.admitLate(scheduled);
    expect(describeStep(late)).toEqual(["a: 1", "b: 1"]);
    scheduler.update(late, resultsOf(late));
    expect(step(parts)).toEqual(["b: 1", "c: 4"]);
  });
});

describe("the waiting queue", () => {
  test("is full when all slots are assigned and the limit waits", () => {
    const { scheduler } = createScheduler({ numSlots: 1, maxNumWaiting: 2 });
    for (const requestId of ["a", "b", "c"]) scheduler.add(createRequest(requestId));
    expect(() => scheduler.add(createRequest("d"))).toThrow(
      new EngineError("queue_full", "3 requests are waiting; the limit is 2."),
    );
  });

  test("with length zero still admits a request to a free slot", () => {
    const parts = createScheduler({ numSlots: 1, maxNumWaiting: 0 });
    parts.scheduler.add(createRequest("a"));
    expect(() => parts.scheduler.add(createRequest("b"))).toThrow(EngineError);
    expect(step(parts)).toEqual(["a: 4"]);
  });
});

describe("images", () => {
  test("a chunk may end inside an image, which is encoded once as a whole", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 6 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 12, images: [createImage("cat", 4, 6)] }));
    const first = parts.scheduler.schedule();
    expect(first.prefills[0]!.imagesToEncode.map(({ mmHash }) => mmHash)).toEqual(["cat"]);
    parts.scheduler.update(first, resultsOf(first, 7, parts.encoderCache));
    expect(parts.encoderCache.has("cat")).toBe(true);
    const second = parts.scheduler.schedule();
    expect(second.prefills[0]).toMatchObject({ firstToken: 6, numTokens: 6, imagesToEncode: [] });
  });

  test("a chunk ends before an image that has to be whole and does not fit, or inside of its markers", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 8, keepsImagesWhole: true });
    const { placeholder, ...cat } = createImage("cat", 4, 8);
    // A marker before and after the six embeddings.
    const isEmbed = [false, true, true, true, true, true, true, false];
    const images = [{ ...cat, placeholder: { ...placeholder, isEmbed } }];
    parts.scheduler.add(createRequest("a", { numPromptTokens: 20, images }));
    const chunks: (readonly [number, number])[] = [];
    while (chunks.length < 3) {
      const scheduled = parts.scheduler.schedule();
      chunks.push(...scheduled.prefills.map(({ firstToken, numTokens }) => [firstToken, numTokens] as const));
      parts.scheduler.update(scheduled, resultsOf(scheduled, 7, parts.encoderCache));
    }
    expect(chunks).toEqual([
      [0, 5],
      [5, 8],
      [13, 7],
    ]);
  });

  test("an image that has to be whole is computed at once in a prompt whose logprobs are wanted", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 8, keepsImagesWhole: true });
    const images = [createImage("cat", 1, 7)];
    parts.scheduler.add(createRequest("a", { numPromptTokens: 9, images, samplingParams: { promptLogprobs: 1 } }));
    expect([step(parts), step(parts), step(parts)]).toEqual([["a: 1"], ["a: 7"], ["a: 1"]]);
  });

  test("an image that has to be whole waits for a step with enough tokens", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 8, keepsImagesWhole: true });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 4 }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 9, images: [createImage("cat", 1, 7)] }));
    const first = parts.scheduler.schedule();
    expect(first.prefills.map(({ numTokens }) => numTokens)).toEqual([4, 1]);
    parts.scheduler.update(first, resultsOf(first, 7, parts.encoderCache));
    const second = parts.scheduler.schedule();
    expect(second.decodes).toHaveLength(1);
    expect(second.prefills.map(({ firstToken, numTokens }) => [firstToken, numTokens])).toEqual([[1, 7]]);
  });

  test("an image that has to be whole is not referenced while its prompt waits for a step with enough tokens", () => {
    const parts = createScheduler({ numSlots: 2, maxNumBatchedTokens: 22, keepsImagesWhole: true });
    const { placeholder, ...cat } = createImage("cat", 17, 8);
    const isEmbed = [false, true, true, true, true, true, true, false];
    const images = [{ ...cat, placeholder: { ...placeholder, isEmbed } }];
    const about = { numPromptTokens: 40, images, samplingParams: { maxTokens: 1 } };
    parts.scheduler.add(createRequest("first", about));
    const scheduled = parts.scheduler.schedule();
    expect(describeStep(scheduled)).toEqual(["first: 18"]);
    parts.kvSlots.setNumKeptTokens(0, 18);
    parts.scheduler.update(scheduled, resultsOf(scheduled, 7, parts.encoderCache));
    parts.scheduler.abort(["first"]);
    const promptTokenIds = Array.from({ length: 17 }, (_, index) => 100 + index);
    parts.scheduler.add(createRequest("text", { promptTokenIds, samplingParams: { maxTokens: 1 } }));
    // Its first token to compute is behind the marker of the image, whose six embeddings do not fit into the step.
    parts.scheduler.add(createRequest("again", about));
    expect([step(parts), step(parts)]).toEqual([["text: 17"], ["again: 22"]]);
    expect(parts.scheduler.hasUnfinished).toBe(false);
    expect(parts.encoderCache.tryAcquire("large", 16)).toBe("to-encode");
  });

  test("an image behind the chunk is not encoded yet", () => {
    const { scheduler } = createScheduler({ maxNumBatchedTokens: 4 });
    scheduler.add(createRequest("a", { numPromptTokens: 12, images: [createImage("cat", 4, 6)] }));
    expect(scheduler.schedule().prefills[0]!.imagesToEncode).toEqual([]);
  });

  test("a chunk ends before an image without room, and continues once there is room", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 32, maxNumEmbeddings: 6 });
    const images = [createImage("cat", 0, 4), createImage("dog", 6, 4)];
    parts.scheduler.add(createRequest("a", { numPromptTokens: 12, images }));
    expect([step(parts), step(parts)]).toEqual([["a: 6"], ["a: 6"]]);
  });

  test("a request whose first image has no room waits, and so do later requests", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 6, maxNumEmbeddings: 8 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 9, images: [createImage("cat", 0, 8)] }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 4, images: [createImage("dog", 0, 3)] }));
    parts.scheduler.add(createRequest("c", { numPromptTokens: 1 }));
    expect(step(parts)).toEqual(["a: 6"]);
    expect(step(parts)).toEqual(["a: 3"]);
    expect(step(parts)).toEqual(["a: 1", "b: 4", "c: 1"]);
  });

  test("a prompt whose image is encoded in the background waits for it whole, and others run", () => {
    const parts = createScheduler({ encodesInBackground: true });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 8, images: [createImage("cat", 3, 4)] }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 6, images: [createImage("dog", 0, 4)] }));
    parts.scheduler.add(createRequest("c", { numPromptTokens: 4 }));
    const first = parts.scheduler.schedule();
    expect(first.awaitedImage?.mmHash).toBe("cat");
    expect(describeStep(first)).toEqual(["c: 4"]);
    parts.scheduler.update(first, resultsOf(first));
    expect(step(parts)).toEqual(["c: 1"]);
    parts.encoderCache.tryStore("cat", 4, new Float32Array(1));
    const second = parts.scheduler.schedule();
    expect(describeStep(second)).toEqual(["c: 1", "a: 8"]);
    expect(second.awaitedImage?.mmHash).toBe("dog");
  });

  test("an image with known embeddings is stored for a chunk that has waited for the image behind it", () => {
    const parts = createScheduler({ encodesInBackground: true });
    const embeddings = { elementType: "float32", shape: [4, 1], data: new Float32Array(4) } as const;
    const known = { ...createImage("cat", 1, 4), tensors: new Map([[embeddingsField, embeddings]]) };
    const images = [known, createImage("dog", 6, 4)];
    parts.scheduler.add(createRequest("a", { numPromptTokens: 12, images }));
    expect(step(parts)).toEqual([]);
    parts.encoderCache.tryStore("dog", 4, new Float32Array(1));
    const { prefills } = parts.scheduler.schedule();
    expect(prefills.map(({ numTokens }) => numTokens)).toEqual([12]);
    expect(prefills[0]!.imagesToEncode.map(({ mmHash }) => mmHash)).toEqual(["cat"]);
  });

  test("a sequence that waits for its image does not hold up requests that share its prefix, nor those behind them", () => {
    const parts = createScheduler({ encodesInBackground: true, numSlots: 6, maxNumBatchedTokens: 64 });
    const shared = Array.from({ length: 24 }, (_, index) => 10 + index);
    const about = (mmHash: string) => ({
      promptTokenIds: [...shared, 50, 51, 52],
      images: [createImage(mmHash, 24, 2)],
    });
    parts.scheduler.add(createRequest("cat", about("cat")));
    parts.scheduler.add(createRequest("same cat", about("cat")));
    parts.scheduler.add(createRequest("dog", about("dog")));
    parts.scheduler.add(createRequest("text", { promptTokenIds: [...shared, 60, 61] }));
    parts.scheduler.add(createRequest("other", { promptTokenIds: [70, 71, 72] }));
    const first = parts.scheduler.schedule();
    expect(describeStep(first)).toEqual(["text: 26", "other: 3"]);
    expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 3, numRequestsWaiting: 2 });
    parts.scheduler.update(first, resultsOf(first));
    parts.kvSlots.setNumKeptTokens(first.prefills[0]!.sequence.kvSlot!, 26);
    // The text has computed the prefix that the other two share.
    expect(step(parts)).toEqual(["text: 1", "other: 1"]);
    expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 5, numRequestsWaiting: 0 });
  });

  test("requests with another's image wait for it in the queue, and reuse its prefix", () => {
    const parts = createScheduler({ encodesInBackground: true, numSlots: 3, maxNumBatchedTokens: 64 });
    const promptTokenIds = Array.from({ length: 24 }, (_, index) => 10 + index);
    const images = [createImage("cat", 20, 2)];
    for (const requestId of ["first", "second"]) {
      parts.scheduler.add(createRequest(requestId, { promptTokenIds, images }));
    }
    parts.scheduler.add(createRequest("other", { promptTokenIds: [70, 71, 72] }));
    expect(step(parts)).toEqual(["other: 3"]);
    parts.encoderCache.tryStore("cat", 2, new Float32Array(1));
    const scheduled = parts.scheduler.schedule();
    expect(describeStep(scheduled)).toEqual(["other: 1", "first: 24"]);
    parts.kvSlots.setNumKeptTokens(scheduled.prefills[0]!.sequence.kvSlot!, 24);
    parts.scheduler.update(scheduled, resultsOf(scheduled));
    expect(step(parts)).toEqual(["first: 1", "other: 1", "second: 1"]);
  });

  test("an image of two requests is encoded by the first", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 8 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 8, images: [createImage("cat", 0, 4)] }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 7, images: [createImage("cat", 2, 4)] }));
    step(parts);
    const second = parts.scheduler.schedule();
    expect(second.prefills[0]!.imagesToEncode).toEqual([]);
  });
});

describe("a prefix kept in a slot", () => {
  const images = [createImage("cat", 2, 8), createImage("dog", 20, 8)];

  /** A scheduler that has computed `numTokens` tokens of a prompt of 40. */
  function schedulerAfter(numTokens: number): SchedulerParts {
    const parts = createScheduler({ numSlots: 1, maxNumBatchedTokens: 64 });
    parts.scheduler.add(createRequest("first", { numPromptTokens: 40, images }));
    const scheduled = parts.scheduler.schedule();
    parts.kvSlots.setNumKeptTokens(0, numTokens);
    parts.scheduler.abort(["first"]);
    parts.scheduler.update(scheduled, resultsOf(scheduled, 7));
    return parts;
  }

  test.for([
    [40, 39, []],
    [28, 28, []],
    [24, 24, ["dog"]],
    [19, 19, ["dog"]],
    [9, 9, ["cat", "dog"]],
  ] as const)(
    "of %i tokens is not computed, and images entirely inside it are not encoded",
    ([kept, first, encoded]) => {
      const { scheduler } = schedulerAfter(kept);
      scheduler.add(createRequest("second", { numPromptTokens: 40, images }));
      const { prefills } = scheduler.schedule();
      expect(prefills).toMatchObject([{ firstToken: first, numTokens: 40 - first }]);
      expect(prefills[0]!.imagesToEncode.map(({ mmHash }) => mmHash)).toEqual(encoded);
      expect(scheduler.stats).toMatchObject({ numPrefixCacheHits: first, numPrefixCacheQueries: 80 });
    },
  );

  test("is not counted as reused while the image behind it has no room", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 24, maxNumEmbeddings: 8 });
    const imageAt20 = (mmHash: string) => ({ numPromptTokens: 48, images: [createImage(mmHash, 20, 8)] });
    parts.scheduler.add(createRequest("first", imageAt20("cat")));
    const scheduled = parts.scheduler.schedule();
    parts.kvSlots.setNumKeptTokens(0, 24);
    parts.scheduler.update(scheduled, resultsOf(scheduled, 7, parts.encoderCache));
    parts.scheduler.add(createRequest("second", imageAt20("dog")));
    parts.scheduler.add(createRequest("third", imageAt20("cat")));
    const tokens = parts.scheduler
      .schedule()
      .prefills.map(({ sequence, firstToken }) => [sequence.requestId, firstToken]);
    expect(tokens).toEqual([["first", 24]]);
    expect(parts.scheduler.abort(["second"])).toMatchObject([{ numCachedTokens: 0 }]);
    expect(parts.scheduler.stats.numPrefixCacheHits).toBe(0);
  });
});

describe("the end of a sequence", () => {
  const endings: [string, RequestOverrides["samplingParams"], number, unknown][] = [
    ["the end token", {}, eosTokenId, { finishReason: "stop", stopReason: null }],
    ["a stop token", { stopTokenIds: [9] }, 9, { finishReason: "stop", stopReason: 9 }],
    ["the last allowed token", { maxTokens: 1 }, 7, { finishReason: "length", stopReason: null }],
    ["an end token it ignores", { ignoreEos: true }, eosTokenId, { finishReason: null }],
    ["a stop token before its minimum", { minTokens: 2, stopTokenIds: [9] }, 9, { finishReason: null }],
    ["the end token as its minimum", { minTokens: 1 }, eosTokenId, { finishReason: "stop" }],
  ];

  test.for(endings)("%s", ([, samplingParams, tokenId, expected]) => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a", { samplingParams }));
    expect(firstOutputs(parts, tokenId)).toMatchObject([expected]);
  });

  test("comes at the model length, whatever minimum was requested", () => {
    const parts = createScheduler({ maxModelLen: 6 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 4, samplingParams: { minTokens: 9 } }));
    step(parts);
    expect(firstOutputs(parts, 7)).toMatchObject([{ finishReason: "length" }]);
    expect(parts.scheduler.hasUnfinished).toBe(false);
  });

  test("a failed sequence ends with its error and the others continue", () => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a"));
    parts.scheduler.add(createRequest("b"));
    const scheduled = parts.scheduler.schedule();
    const results = new Map(resultsOf(scheduled));
    const error = new EngineError("runtime_failed", "no memory");
    results.set(scheduled.prefills[0]!.sequence, { kind: "failed", error });
    expect(parts.scheduler.update(scheduled, results)).toMatchObject([
      { requestId: "a", finishReason: "error", tokenIds: [], error: { code: "runtime_failed", message: "no memory" } },
      { requestId: "b", finishReason: null, tokenIds: [7] },
    ]);
    expect(step(parts)).toEqual(["b: 1"]);
  });

  test("a sequence that finds no memory even alone ends, and the steps of the others stay as large", () => {
    const parts = createScheduler();
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId));
    step(parts);
    const scheduled = parts.scheduler.schedule();
    const results = new Map(resultsOf(scheduled));
    const error = new EngineError("out_of_memory", "CUDA failure 2: out of memory");
    const run = { numTokens: 1, numSequences: 1 };
    results.set(scheduled.decodes[0]!, { kind: "out_of_memory", error, run, keepsTokens: true });
    expect(parts.scheduler.update(scheduled, results)).toMatchObject([
      { requestId: "a", finishReason: "error", error: { code: "out_of_memory" } },
      { requestId: "b", tokenIds: [7] },
      { requestId: "c", tokenIds: [7] },
    ]);
    expect(step(parts)).toEqual(["b: 1", "c: 1"]);
  });
});

describe("aborting", () => {
  test("a sequence between the run and its update discards its token", () => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a"));
    const scheduled = parts.scheduler.schedule();
    expect(parts.scheduler.abort(["a", "unknown"])).toMatchObject([{ requestId: "a", finishReason: "abort" }]);
    expect(parts.scheduler.update(scheduled, resultsOf(scheduled))).toEqual([]);
    expect(parts.kvSlots.numFree).toBe(4);
  });

  test("at any moment frees slots and images, and no other request loses a token", () => {
    const requests = fc.array(
      fc.record({ numPromptTokens: fc.integer({ min: 1, max: 40 }), hasImage: fc.boolean(), abortAt: fc.nat(60) }),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(requests, fc.integer({ min: 1, max: 24 }), (specs, maxNumBatchedTokens) => {
        const parts = createScheduler({ maxNumBatchedTokens, maxNumWaiting: 20, maxNumEmbeddings: 10 });
        const numTokens = new Map<string, number>();
        const ended = new Map<string, string>();
        specs.forEach(({ numPromptTokens, hasImage }, index) => {
          const images = hasImage && numPromptTokens > 8 ? [createImage(`image ${index % 3}`, 2, 6)] : [];
          const samplingParams = { maxTokens: 5 };
          parts.scheduler.add(createRequest(`${index}`, { numPromptTokens, images, samplingParams }));
        });
        for (let moment = 0; parts.scheduler.hasUnfinished; moment++) {
          expect(moment).toBeLessThan(1000);
          const aborted = specs.flatMap(({ abortAt }, index) => (abortAt === moment ? [`${index}`] : []));
          const scheduled = parts.scheduler.schedule();
          const numScheduled = scheduled.prefills.reduce(
            (sum, chunk) => sum + chunk.numTokens,
            scheduled.decodes.length,
          );
          expect(numScheduled).toBeLessThanOrEqual(maxNumBatchedTokens);
          const results = resultsOf(scheduled, 7, parts.encoderCache);
          const outputs = [
            ...(moment % 2 === 0 ? parts.scheduler.abort(aborted) : []),
            ...parts.scheduler.update(scheduled, results),
            ...(moment % 2 === 1 ? parts.scheduler.abort(aborted) : []),
          ];
          for (const { requestId, tokenIds, finishReason } of outputs) {
            expect(ended.has(requestId)).toBe(false);
            numTokens.set(requestId, (numTokens.get(requestId) ?? 0) + tokenIds.length);
            if (finishReason !== null) ended.set(requestId, finishReason);
          }
        }
        for (const [requestId, finishReason] of ended) {
          expect(finishReason === "abort" || numTokens.get(requestId) === 5).toBe(true);
        }
        expect(ended.size).toBe(specs.length);
        expect(parts.kvSlots.numFree).toBe(4);
        expect(parts.kvSlots.usage).toBe(0);
        // Every image has lost its references if an item as large as the whole cache finds room.
        expect(parts.encoderCache.tryAcquire("large", 10)).toBe("to-encode");
      }),
      { numRuns: 200 },
    );
  });
});
