/** `Engine.render` and `Engine.detokenize` with the shipped checkpoint. */
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createEngine } from "../../engine/index.ts";
import type { Engine, GenerationRequest, ImageSource, PromptRequest } from "../../engine/index.ts";

/** Never answers. */
const silent: ImageSource = {
  schemes: ["silent"],
  async fetch(_reference, { signal }) {
    numFetches += 1;
    await once(signal, "abort");
    throw signal.reason;
  },
};
let numFetches = 0;
let engine: Engine;

beforeAll(async () => {
  engine = createEngine({ maxNumSequences: 1, maxNumWaiting: 1 }, { imageSources: [silent] });
  await engine.ready;
});
afterAll(() => engine.close());

const text = (prompt: string): PromptRequest => ({
  prompt: { kind: "text", text: prompt, addSpecialTokens: false },
});
const waiting: PromptRequest = {
  prompt: {
    kind: "text",
    text: "<image>",
    addSpecialTokens: false,
    images: [{ type: "image", reference: "silent://picture" }],
  },
};

test("a rendered prompt has the tokens of the text", async () => {
  const { tokenIds, images } = await engine.render(text("A large red circle"));
  expect(await engine.detokenize(tokenIds)).toBe("A large red circle");
  expect(engine.tokensOf(tokenIds)).toHaveLength(tokenIds.length);
  expect(images).toEqual([]);
});

test("a prompt that the model is too short for is rendered only to be counted", async () => {
  const long = text("circle ".repeat(3000));
  await expect(engine.render(long)).rejects.toMatchObject({ code: "prompt_too_long" });
  const { tokenIds } = await engine.render(long, { exceedsModelLen: true });
  expect(tokenIds.length).toBeGreaterThan(engine.modelInfo!.maxModelLen);
});

test("an id outside the vocabulary is rejected", async () => {
  const { vocabSize } = engine.modelInfo!;
  const refusal = { code: "invalid_argument", parameter: "tokens[1]" };
  await expect(engine.detokenize([0, vocabSize])).rejects.toMatchObject(refusal);
  await expect(engine.detokenize([0, 0.5])).rejects.toMatchObject(refusal);
});

test("a request that is no request is rejected before anything is done for it", async () => {
  const none = undefined as unknown as GenerationRequest;
  const rejection = { code: "invalid_argument", message: "The request is undefined; expected an object." };
  await expect(engine.render(none)).rejects.toMatchObject(rejection);
  await expect(engine.generate(none)[Symbol.asyncIterator]().next()).rejects.toMatchObject(rejection);
});

test("rendering ends with its signal, and counts as a request until then", async () => {
  numFetches = 0;
  const controllers = [new AbortController(), new AbortController()];
  const rendering = controllers.map(({ signal }) => engine.render(waiting, { signal }));
  const ended = Promise.allSettled(rendering);
  await expect.poll(() => numFetches).toBe(2);
  await expect(engine.render(text("a"))).rejects.toMatchObject({ code: "queue_full" });
  for (const controller of controllers) controller.abort();
  const outcomes = await ended;
  expect(outcomes).toMatchObject([{ reason: { code: "aborted" } }, { reason: { code: "aborted" } }]);
  expect((await engine.render(text("a"))).tokenIds).not.toEqual([]);
  const aborted = engine.render(text("a"), { signal: AbortSignal.abort() });
  await expect(aborted).rejects.toMatchObject({ code: "aborted" });
});

test("closing the engine ends rendering", async () => {
  const closing = createEngine({ maxNumSequences: 1 }, { imageSources: [silent] });
  await closing.ready;
  numFetches = 0;
  const outcome = Promise.allSettled([closing.render(waiting)]);
  await expect.poll(() => numFetches).toBe(1);
  await closing.close();
  expect(await outcome).toMatchObject([{ reason: { code: "closed" } }]);
  await expect(closing.render(text("a"))).rejects.toMatchObject({ code: "closed" });
});
