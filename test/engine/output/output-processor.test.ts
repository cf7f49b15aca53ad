import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import type { ReasoningStart } from "../../../engine/contract/request-output.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { decodePrompt } from "../../../engine/output/decode-logprobs.ts";
import { RequestOutputs } from "../../../engine/output/output-processor.ts";
import type { EngineCoreOutput } from "../../../engine/thread/messages.ts";
import { loadFixtureTokenizer } from "../text/fixture-tokenizer.ts";

const tokenizer = await loadFixtureTokenizer("gpt2");
const endTokenId = tokenizer.tokenId("</s>") as number;

async function encode(text: string): Promise<number[]> {
  return (await tokenizer.encode(text, { addSpecialTokens: false })) as number[];
}

function createOutputs(
  params: Partial<SamplingParams> = {},
  reasoningStart: ReasoningStart | null = null,
): RequestOutputs {
  return new RequestOutputs({
    requestId: "request",
    samplingParams: createSamplingParams(params),
    vocabulary: tokenizer,
    reasoningStart,
    numPromptTokens: 7,
    numImageTokens: 4,
    prompt: null,
  });
}

function step(tokenIds: readonly number[], more: Partial<EngineCoreOutput> = {}): EngineCoreOutput {
  return {
    requestId: "request",
    tokenIds,
    logprobs: null,
    finishReason: null,
    stopReason: null,
    error: null,
    numCachedTokens: 3,
    ...more,
  };
}

/** One token per step, the last with the finish reason. Ends early at a stop string. */
function feed(outputs: RequestOutputs, tokenIds: readonly number[], last: Partial<EngineCoreOutput>): boolean {
  return tokenIds.some((tokenId, index) => outputs.append(step([tokenId], index === tokenIds.length - 1 ? last : {})));
}

test("a slow consumer gets everything merged into one output", async () => {
  const outputs = createOutputs();
  const tokenIds = await encode("A red circle.");
  feed(outputs, tokenIds, { finishReason: "length" });
  expect(await outputs.next()).toEqual({
    requestId: "request",
    index: 0,
    prompt: null,
    text: "A red circle.",
    tokenIds,
    logprobs: null,
    finishReason: "length",
    stopReason: null,
    numPromptTokens: 7,
    numImageTokens: 4,
    numCachedTokens: 3,
    numOutputTokens: tokenIds.length,
  });
});

test("a merged output tells which text each token has, if the model marks its thinking", async () => {
  const outputs = createOutputs({}, "before");
  const [first, ...rest] = await encode("😀");
  const tokenIds = [...(await encode("A red circle")), first!];
  feed(outputs, tokenIds, { finishReason: "length" });
  const { text, textEnds } = await outputs.next();
  expect(rest.length).toBeGreaterThan(0);
  expect(textEnds!.map((end) => text.slice(0, end))).toEqual(["A", "A red", "A red circle", "A red circle\uFFFD"]);
  const single = createOutputs({}, "before");
  single.append(step([tokenIds[0]!], { finishReason: "length" }));
  expect(await single.next()).not.toHaveProperty("textEnds");
});

test("a waiting consumer gets each step's output", async () => {
  const outputs = createOutputs();
  const [first, second] = await encode("ab");
  const waiting = outputs.next();
  outputs.append(step([first!]));
  expect(await waiting).toMatchObject({ text: "a", tokenIds: [first], finishReason: null, numOutputTokens: 1 });
  outputs.append(step([second!], { finishReason: "length" }));
  expect(await outputs.next()).toMatchObject({ text: "b", tokenIds: [second], finishReason: "length" });
});

test("an incomplete character is held back, and becomes a replacement character at the end", async () => {
  const outputs = createOutputs();
  const [first, ...rest] = await encode("😀");
  expect(rest.length).toBeGreaterThan(0);
  outputs.append(step([first!]));
  expect(await outputs.next()).toMatchObject({ text: "", tokenIds: [first] });
  outputs.append(step(rest));
  expect(await outputs.next()).toMatchObject({ text: "😀" });
  outputs.append(step([first!], { finishReason: "length" }));
  expect(await outputs.next()).toMatchObject({ text: "\uFFFD" });
});

describe("a token that ends the text", () => {
  test.for([
    [{}, "ab"],
    [{ skipSpecialTokens: false }, "ab"],
    [{ skipSpecialTokens: false, includeStopStringInOutput: true }, "ab</s>"],
    [{ includeStopStringInOutput: true }, "ab"],
  ] as const)("with %j leaves the text %j, and is always among the tokens", async ([params, text]) => {
    const outputs = createOutputs(params);
    const tokenIds = [...(await encode("ab")), endTokenId];
    feed(outputs, tokenIds, { finishReason: "stop" });
    expect(await outputs.next()).toMatchObject({ text, tokenIds, finishReason: "stop", stopReason: null });
  });

  test("reports its id as the reason if the request named it", async () => {
    const outputs = createOutputs();
    const [tokenId] = await encode("b");
    feed(outputs, [...(await encode("a")), tokenId!], { finishReason: "stop", stopReason: tokenId! });
    expect(await outputs.next()).toMatchObject({ text: "a", stopReason: tokenId });
  });
});

describe("a stop string", () => {
  test("ends the text before it, across tokens, and requests the end of the sequence once", async () => {
    const outputs = createOutputs({ stop: ["circle"] });
    const tokenIds = await encode("A red circle here");
    expect(feed(outputs, tokenIds, {})).toBe(true);
    const output = await outputs.next();
    expect(output).toMatchObject({ text: "A red ", finishReason: "stop", stopReason: "circle" });
    expect(output.numOutputTokens).toBeLessThan(tokenIds.length);
    expect(outputs.append(step(tokenIds))).toBe(false);
    expect(outputs.isFinished).toBe(true);
  });

  test("completed by the last token of a sequence takes precedence over its other end, and needs no abort", async () => {
    const outputs = createOutputs({ stop: ["circle"] });
    expect(feed(outputs, await encode("A red circle"), { finishReason: "length" })).toBe(false);
    expect(await outputs.next()).toMatchObject({ text: "A red ", finishReason: "stop", stopReason: "circle" });
  });

  test("counts only in text after minTokens", async () => {
    const tokenIds = await encode("xyxy");
    expect(tokenIds).toHaveLength(4);
    const outputs = createOutputs({ stop: ["y"], minTokens: 2 });
    expect(feed(outputs, tokenIds, {})).toBe(true);
    expect(await outputs.next()).toMatchObject({ text: "xyx", numOutputTokens: 4 });
  });

  test("that does not occur is emitted in full at the end", async () => {
    const outputs = createOutputs({ stop: ["a long stop string"] });
    feed(outputs, await encode("short"), { finishReason: "length" });
    expect(await outputs.next()).toMatchObject({ text: "short", finishReason: "length" });
  });

  test("drops later tokens of the same step", async () => {
    const outputs = createOutputs({ stop: ["y"] });
    const tokenIds = await encode("xyzz");
    expect(outputs.append(step(tokenIds, { finishReason: "length" }))).toBe(false);
    expect(await outputs.next()).toMatchObject({ text: "x", tokenIds: tokenIds.slice(0, 2), stopReason: "y" });
  });
});

test("logprobs contain the text and bytes of their tokens", async () => {
  const outputs = createOutputs({ logprobs: 1 });
  const [open] = await encode("😀");
  const [a] = await encode("a");
  const logprobs = [
    { sampled: { tokenId: a!, logprob: -1, rank: 2 }, top: [{ tokenId: open!, logprob: -0.5, rank: 1 }] },
  ];
  outputs.append(step([a!], { logprobs }));
  const output = await outputs.next();
  expect(output.logprobs).toEqual([
    {
      sampled: { tokenId: a, logprob: -1, rank: 2, token: "a", bytes: [0x61] },
      top: [{ tokenId: open, logprob: -0.5, rank: 1, token: "\uFFFD", bytes: [...tokenizer.tokenBytes(open!)] }],
    },
  ]);
});

test.for([true, false])("logprobs mark special tokens that the text leaves out: %s", async (skipSpecialTokens) => {
  const outputs = createOutputs({ logprobs: 0, ignoreEos: true, skipSpecialTokens });
  const [a] = await encode("a");
  for (const tokenId of [a!, endTokenId, a!]) {
    outputs.append(step([tokenId], { logprobs: [{ sampled: { tokenId, logprob: -1, rank: 1 }, top: [] }] }));
  }
  const { text, logprobs } = await outputs.next();
  expect(text).toBe(skipSpecialTokens ? "aa" : "a</s>a");
  expect(logprobs!.map(({ isLeftOut = false }) => isLeftOut)).toEqual([false, skipSpecialTokens, false]);
});

test.for([
  ["a", ["<s>", "a", "</s>"], [true, false, true]],
  ["<s>a", ["<s>", "a"], [false, false]],
  ["<s>a", ["<s>", "<s>", "a"], [false, true, false]],
  ["<s>", ["<s>"], [false]],
  ["a</s>a", ["a", "</s>", "a"], [false, false, false]],
] as const)(
  "the prompt %j of the tokens %j leaves out those that the tokenizer added",
  async ([text, names, added]) => {
    const idOf = async (name: string) => tokenizer.tokenId(name) ?? (await encode(name))[0]!;
    const tokenIds = await Promise.all(names.map(idOf));
    const { tokens } = await decodePrompt({ text, tokenIds, placeholders: [] }, null, tokenizer);
    expect(tokens.map(({ textBytes }) => textBytes?.length === 0)).toEqual(added);
  },
);

test("the same token has its text and bytes once in memory, however often logprobs name it", async () => {
  const outputs = createOutputs({ logprobs: 1 });
  const [a] = await encode("a");
  const named = { tokenId: a!, logprob: -1, rank: 1 };
  outputs.append(step([a!], { logprobs: [{ sampled: named, top: [named] }] }));
  outputs.append(step([a!], { logprobs: [{ sampled: named, top: [named] }] }));
  const { logprobs } = await outputs.next();
  const [first, second] = logprobs!;
  expect(first!.sampled.bytes).toEqual([0x61]);
  expect(first!.top[0]!.bytes).toBe(first!.sampled.bytes);
  expect(second!.sampled.bytes).toBe(first!.sampled.bytes);
});

test("sequences ahead of the first wait for the prompt's logprobs, which it computes for all", async () => {
  const [a, b] = await encode("ab");
  const samplingParams = createSamplingParams({ promptLogprobs: 0 });
  const prompt = { text: "ab", tokenIds: [a!, b!], placeholders: [] };
  const shared = { samplingParams, vocabulary: tokenizer, prompt, numPromptTokens: 2, numImageTokens: 0 };
  const outputs = new RequestOutputs({ requestId: "request", ...shared }, 2);
  outputs.append(step([a!], { finishReason: "length" }), 1);
  const first = outputs.next();
  outputs.append(step([b!], { promptLogprobs: [{ sampled: { tokenId: b!, logprob: -1, rank: 2 }, top: [] }] }), 0);
  outputs.append(step([b!], { finishReason: "length" }), 0);
  const both = [await first, await outputs.next()].toSorted((left, right) => left.index - right.index);
  expect(both.map(({ tokenIds }) => tokenIds)).toEqual([[b, b], [a]]);
  for (const output of both) {
    expect(output.prompt).toEqual({
      text: "ab",
      tokens: [
        { tokenId: a, token: "a", bytes: [0x61] },
        { tokenId: b, token: "b", bytes: [0x62] },
      ],
      logprobs: [null, { sampled: { tokenId: b, logprob: -1, rank: 2, token: "b", bytes: [0x62] }, top: [] }],
    });
  }
});

test("an error of the engine thread or a failure from outside reaches a waiting consumer", async () => {
  const failed = createOutputs();
  const waiting = failed.next();
  failed.append(step([], { finishReason: "error", error: { code: "logits_processor_failed", message: "broken" } }));
  await expect(waiting).rejects.toMatchObject({ code: "logits_processor_failed", message: "broken" });
  expect(failed.isFinished).toBe(true);

  const closed = createOutputs();
  closed.fail(new EngineError("closed", "closed"));
  closed.append(step(await encode("late")));
  await expect(closed.next()).rejects.toMatchObject({ code: "closed" });
});
