/** Prompts with images: what is encoded when, and what waits for it. */
import { expect, test } from "vitest";

import { embeddingsField } from "../../../engine/multimodal/processed-item.ts";
import { createImage, createRequest, createScheduler, describeStep, resultsOf, step } from "./create-scheduler.ts";

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

test("joined images are computed at once with the text between them", () => {
  const parts = createScheduler({ maxNumBatchedTokens: 10, keepsImagesWhole: true, joinsImages: true });
  const images = [createImage("cat", 3, 4), createImage("dog", 9, 4)];
  parts.scheduler.add(createRequest("a", { numPromptTokens: 16, images }));
  expect([step(parts), step(parts), step(parts)]).toEqual([["a: 3"], ["a: 10"], ["a: 3"]]);
});

test("a prompt whose joined images have no room lets go of those that it holds", () => {
  const options = { numSlots: 2, maxNumBatchedTokens: 9, keepsImagesWhole: true, joinsImages: true };
  const parts = createScheduler({ ...options, maxNumEmbeddings: 8 });
  const images = [createImage("cat", 1, 4), createImage("dog", 6, 4)];
  parts.scheduler.add(createRequest("a", { numPromptTokens: 12, images }));
  expect(step(parts)).toEqual(["a: 1"]);
  parts.encoderCache.tryAcquire("other", 4);
  expect(step(parts)).toEqual([]);
  // What it held is free for others.
  expect(parts.encoderCache.tryAcquire("third", 4)).toBe("to-encode");
  parts.encoderCache.release("third");
  parts.encoderCache.release("other");
  expect([step(parts), step(parts)]).toEqual([["a: 9"], ["a: 2"]]);
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
