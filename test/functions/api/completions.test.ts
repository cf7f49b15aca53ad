import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const path = "/v1/completions";

test.for<[unknown, unknown[]]>([
  ["one", [{ kind: "text", text: "one", addSpecialTokens: true }]],
  [
    ["one", "two"],
    [expect.objectContaining({ text: "one" }), expect.objectContaining({ text: "two" })],
  ],
  [[1, 2, 3], [{ kind: "tokens", tokenIds: [1, 2, 3] }]],
  [
    [[1, 2], [3]],
    [
      { kind: "tokens", tokenIds: [1, 2] },
      { kind: "tokens", tokenIds: [3] },
    ],
  ],
])("prompt %j", async ([prompt, expected]) => {
  const { post, engine } = createTestApp();
  const response = await post(path, { prompt });
  expect(response.status).toBe(200);
  expect(engine.requests.map((request) => request.prompt)).toEqual(expected);
  expect(engine.requests[0]!.samplingParams.maxTokens).toBe(16);
});

test("several prompts give choices in order, and usage sums them", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { post } = createTestApp({
    script: (prompt) => {
      if (prompt === "slow") return [promise, "s", "low"];
      queueMicrotask(resolve);
      return ["fast"];
    },
  });
  const response = await post(path, { prompt: ["slow", "quick"] });
  expect(await response.json()).toEqual({
    id: expect.stringMatching(/^cmpl-/),
    object: "text_completion",
    created: expect.any(Number),
    model: "tiny",
    choices: [
      { index: 0, text: "slow", logprobs: null, finish_reason: "stop", stop_reason: null },
      { index: 1, text: "fast", logprobs: null, finish_reason: "stop", stop_reason: null },
    ],
    usage: {
      prompt_tokens: 10,
      completion_tokens: 3,
      total_tokens: 13,
      prompt_tokens_details: { cached_tokens: 0, multimodal_tokens: { image: 0 } },
    },
  });
});

test("a stream interleaves its choices, one per chunk, each with one finish chunk", async () => {
  const { post } = createTestApp({ script: (prompt) => [`${prompt}1`, `${prompt}2`, `${prompt}3`] });
  const response = await post(path, { prompt: ["a", "b"], stream: true, stream_options: { include_usage: true } });
  const blocks = (await response.text()).trimEnd().split("\n\n");
  expect(blocks.pop()).toBe("data: [DONE]");
  const chunks = blocks.map((block) => JSON.parse(block.slice("data: ".length)) as StreamChunk);
  expect(chunks.pop()).toMatchObject({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 6 } });
  const textOf = (index: number): string =>
    chunks
      .flatMap(({ choices }) => choices)
      .filter((choice) => choice.index === index)
      .map(({ text }) => text)
      .join("");
  expect([textOf(0), textOf(1)]).toEqual(["a1a2a3", "b1b2b3"]);
  const endings = chunks.flatMap(({ choices }) => choices).filter((choice) => choice.finish_reason !== null);
  expect(new Set(endings.map(({ index }) => index))).toEqual(new Set([0, 1]));
  expect(endings).toHaveLength(2);
});

interface StreamChunk {
  readonly choices: readonly { readonly index: number; readonly text: string; readonly finish_reason: string | null }[];
}

test("when one of several prompts fails, the others end", async () => {
  const { post, engine, service } = createTestApp({
    script: (prompt) => (prompt === "bad" ? [new EngineError("prompt_too_long", "6 of 5.")] : ["a", hang]),
  });
  const response = await post(path, { prompt: ["good", "bad", "good"] });
  expect(response.status).toBe(400);
  await expect.poll(() => engine.numRunning).toBe(0);
  expect(engine.numAborted).toBe(3);
  expect(service.numRequests).toBe(0);
});

test("logprobs are lists with one entry per token, the sampled token among the top, and offsets that continue across chunks", async () => {
  const of = (token: string, logprob: number) => ({
    tokenId: 1,
    token,
    logprob,
    rank: 2,
    bytes: [...Buffer.from(token)],
  });
  const entry = (token: string) => [{ sampled: of(token, -2), top: [of("x", -1)] }];
  const script = [
    { text: "ab", logprobs: entry("ab") },
    { text: "cd", logprobs: entry("cd"), finishReason: "stop" as const },
  ];
  const { post } = createTestApp({ script });
  const whole = (await (await post(path, { prompt: "a", logprobs: 1 })).json()) as { choices: { logprobs: unknown }[] };
  expect(whole.choices[0]!.logprobs).toEqual({
    tokens: ["ab", "cd"],
    token_logprobs: [-2, -2],
    top_logprobs: [
      { x: -1, ab: -2 },
      { x: -1, cd: -2 },
    ],
    text_offset: [0, 2],
  });
  const stream = await (await post(path, { prompt: "a", logprobs: 1, stream: true })).text();
  expect(stream).toMatch(/"text_offset":\[0\][\s\S]*"text_offset":\[2\]/);
});

test("offsets count code points, whatever the characters need in UTF-16", async () => {
  const entry = (token: string) => [
    { sampled: { tokenId: 1, token, logprob: -1, rank: 1, bytes: [...Buffer.from(token)] }, top: [] },
  ];
  const script = ["\u{1f600}a", "\u00e9", "b"].map((text) => ({ text, logprobs: entry(text) }));
  const { post } = createTestApp({ script });
  const whole = await (await post(path, { prompt: "a", logprobs: 0 })).json();
  expect(whole).toMatchObject({ choices: [{ logprobs: { text_offset: [0, 2, 3] } }] });
  const stream = await (await post(path, { prompt: "a", logprobs: 0, stream: true })).text();
  expect(stream).toMatch(/"text_offset":\[0\][^]*"text_offset":\[2\][^]*"text_offset":\[3\]/);
});

test("offsets leave out special tokens that the text does not have, of the answer and of an echoed prompt", async () => {
  const named = (token: string) => ({ tokenId: 1, token, bytes: [...Buffer.from(token)] });
  const entry = (token: string) => ({ sampled: { ...named(token), logprob: -1, rank: 1 }, top: [] });
  const prompt = { text: "Hi", tokens: [{ ...named("<s>"), textBytes: [] }, named("Hi")], logprobs: null };
  const script = [
    { text: "No", logprobs: [entry("No")], prompt },
    { text: "", logprobs: [{ ...entry("</s>"), isLeftOut: true as const }] },
    { text: "No", logprobs: [entry("No")] },
  ];
  const { post } = createTestApp({ script });
  const answer = await (await post(path, { prompt: "Hi", logprobs: 0, echo: true, ignore_eos: true })).json();
  expect(answer).toMatchObject({ choices: [{ text: "HiNoNo", logprobs: { text_offset: [0, 0, 2, 4, 4] } }] });
});

test("tokens that are parts of a character have its offset, over the chunks of a stream", async () => {
  const entry = (bytes: readonly number[]) => {
    const token = Buffer.from(bytes).toString();
    return { sampled: { tokenId: 1, token, logprob: -1, rank: 1, bytes }, top: [] };
  };
  const [first, second, third, fourth] = [...Buffer.from("\u{1f600}")].map((byte) => entry([byte]));
  const script = [
    { text: "a", logprobs: [entry([0x61]), first!, second!] },
    { text: "\u{1f600}", logprobs: [third!, fourth!] },
    { text: "bc", logprobs: [entry([0x62, 0x63])], finishReason: "stop" as const },
  ];
  const { post } = createTestApp({ script });
  const whole = await (await post(path, { prompt: "a", logprobs: 0 })).json();
  expect(whole).toMatchObject({ choices: [{ text: "a\u{1f600}bc", logprobs: { text_offset: [0, 1, 1, 1, 1, 2] } }] });
  const stream = await (await post(path, { prompt: "a", logprobs: 0, stream: true })).text();
  expect(stream).toMatch(/"text_offset":\[0,1,1\][^]*"text_offset":\[1,1\][^]*"text_offset":\[2\]/);
});

test("each prompt has its own choices, after those of the previous prompt", async () => {
  const { post } = createTestApp({
    script: (prompt) => [
      { index: 0, text: `${prompt}0`, finishReason: "stop" },
      { index: 1, text: `${prompt}1`, finishReason: "stop" },
    ],
  });
  const answer = (await (await post(path, { prompt: ["a", "b"], n: 2 })).json()) as Completion;
  expect(answer.choices.map(({ index, text }) => [index, text])).toEqual([
    [0, "a0"],
    [1, "a1"],
    [2, "b0"],
    [3, "b1"],
  ]);
  expect(answer.usage.prompt_tokens).toBe(10);
});

interface Completion {
  readonly choices: readonly { readonly index: number; readonly text: string; readonly logprobs: object | null }[];
  readonly usage: object & { readonly prompt_tokens: number };
}

describe("an answer with its prompt (echo)", () => {
  const bytesOf = (token: string) => [...Buffer.from(token)];
  const of = (token: string, logprob: number) => {
    return { tokenId: token.length, token, logprob, rank: 1, bytes: bytesOf(token) };
  };
  const entry = (token: string, logprob: number) => ({ sampled: of(token, logprob), top: [of("xyz", -0.5)] });
  const prompt = {
    text: "one two",
    tokens: ["one", " two"].map((token) => ({ tokenId: 1, token, bytes: bytesOf(token) })),
    logprobs: [null, entry(" two", -1)],
  };
  const script = [{ prompt, text: "!", logprobs: [entry("!", -2)] }];

  test("has the prompt's text and, if requested, its logprobs, of which the first is null", async () => {
    const { post, engine } = createTestApp({ script });
    const answer = (await (await post(path, { prompt: "one two", echo: true, logprobs: 1 })).json()) as Completion;
    expect(engine.requests[0]).toMatchObject({ includePrompt: true, samplingParams: { promptLogprobs: 1 } });
    expect(answer.choices).toEqual([
      {
        index: 0,
        text: "one two!",
        logprobs: {
          tokens: ["one", " two", "!"],
          token_logprobs: [null, -1, -2],
          top_logprobs: [null, { xyz: -0.5, " two": -1 }, { xyz: -0.5, "!": -2 }],
          text_offset: [0, 3, 7],
        },
        finish_reason: "stop",
        stop_reason: null,
      },
    ]);
    const streamed = await (await post(path, { prompt: "one two", echo: true, logprobs: 1, stream: true })).text();
    expect(JSON.parse(streamed.slice("data: ".length, streamed.indexOf("\n\n")))).toMatchObject({
      choices: answer.choices,
    });
  });

  test("is the prompt alone if no token is requested", async () => {
    const { post, engine } = createTestApp({ script });
    const asked = { prompt: "one two", echo: true, max_tokens: 0, logprobs: 1 };
    const answer = (await (await post(path, asked)).json()) as Completion;
    expect(engine.requests[0]!.samplingParams.maxTokens).toBe(1);
    expect(answer).toMatchObject({
      choices: [{ text: "one two", logprobs: { tokens: ["one", " two"] }, finish_reason: "length" }],
      usage: { completion_tokens: 0 },
    });
  });

  test("does not include the prompt for prompt_logprobs alone, which are listed by token id", async () => {
    const { post } = createTestApp({ script });
    const answer = (await (await post(path, { prompt: "one two", prompt_logprobs: 1 })).json()) as Completion;
    expect(answer.choices).toMatchObject([
      {
        text: "!",
        logprobs: null,
        prompt_logprobs: [
          null,
          {
            4: { logprob: -1, rank: 1, decoded_token: " two" },
            3: { logprob: -0.5, rank: 1, decoded_token: "xyz" },
          },
        ],
      },
    ]);
  });
});
