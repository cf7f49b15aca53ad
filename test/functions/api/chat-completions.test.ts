import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { DecodedLogprob, DecodedTokenLogprobs } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";

const path = "/v1/chat/completions";
const usage = {
  prompt_tokens: 5,
  completion_tokens: 3,
  total_tokens: 8,
  prompt_tokens_details: { cached_tokens: 0, multimodal_tokens: { image: 0 } },
};

/** The events of a stream, with `[DONE]` and comments unparsed. */
async function readEvents(response: Response): Promise<unknown[]> {
  const blocks = (await response.text()).split("\n\n");
  expect(blocks.pop()).toBe("");
  return blocks.map((block) => (block.startsWith("data: {") ? JSON.parse(block.slice(6)) : block) as unknown);
}

test("an answer has OpenAI's shape", async () => {
  const response = await createTestApp().post(path, chatBody);
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(await response.json()).toEqual({
    id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
    object: "chat.completion",
    created: expect.any(Number),
    model: "tiny",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: "Hello.", refusal: null },
        logprobs: null,
        finish_reason: "stop",
        stop_reason: null,
      },
    ],
    usage,
  });
});

test.for([{}, { model: null }, { model: "" }])("a request with %j gets the first model", async (fields) => {
  const response = await createTestApp().post(path, { ...chatBody, ...fields });
  expect([response.status, await response.json()]).toEqual([200, expect.objectContaining({ model: "tiny" })]);
});

test("the answer has the alias that the request names", async () => {
  const response = await createTestApp().post(path, { ...chatBody, model: "tiny-alias" });
  expect(await response.json()).toMatchObject({ model: "tiny-alias" });
});

test("all fields reach the engine under its names", async () => {
  const { post, engine } = createTestApp();
  await post(path, {
    messages: [
      { role: "developer", content: "Be brief." },
      {
        role: "user",
        content: [
          "bare",
          { type: "text", text: "one" },
          { type: "input_text", text: "two" },
          { type: "image_url", image_url: { url: "https://example.com/a.png", detail: "low" } },
          { image_url: "s3://bucket/key" },
          { type: "image_url", image_url: "s3://bucket/other" },
          { type: "image_url", image_url: "s3://bucket/named", uuid: "mine" },
          { type: "input_image", image_url: "data:image/png;base64,AAAA" },
          { type: "image_embeds", image_embeds: "AAAA" },
          { type: "image_embeds", image_embeds: { image_embeds: "BBBB", image_grid_thw: [1, 4, 6] } },
          { image_embeds: { image_embeds: "s3://bucket/embeds", image_grid_thw: [1, 2, 2] } },
        ],
      },
      { role: "assistant", content: null },
      { role: "assistant", content: [{ type: "output_text", text: "three" }] },
    ],
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    min_p: 0.1,
    presence_penalty: 0.5,
    frequency_penalty: -0.5,
    repetition_penalty: 1.1,
    logit_bias: { 5: 1.5 },
    allowed_token_ids: [5, 6],
    bad_words: ["red"],
    n: 3,
    prompt_logprobs: 1,
    response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } },
    seed: 2 ** 60,
    max_tokens: 5,
    max_completion_tokens: 7,
    min_tokens: 2,
    stop: "END",
    stop_token_ids: [3, 4],
    ignore_eos: true,
    repetition_detection: { max_pattern_size: 8, min_count: 3 },
    include_stop_str_in_output: true,
    skip_special_tokens: false,
    logprobs: true,
    top_logprobs: 2,
    add_generation_prompt: false,
    add_special_tokens: true,
    vllm_xargs: { target: 5, names: ["a", 1, true] },
    cache_salt: "mine",
  });
  expect(engine.requests).toEqual([
    {
      requestId: expect.stringMatching(/^chatcmpl-/),
      tenant: "",
      cacheSalt: '["","mine"]',
      priority: 0,
      numChoices: 3,
      prompt: {
        kind: "chat",
        addGenerationPrompt: false,
        addSpecialTokens: true,
        messages: [
          { role: "system", content: "Be brief." },
          {
            role: "user",
            content: [
              { type: "text", text: "bare" },
              { type: "text", text: "one" },
              { type: "text", text: "two" },
              { type: "image", reference: "https://example.com/a.png" },
              { type: "image", reference: "s3://bucket/key" },
              { type: "image", reference: "s3://bucket/other" },
              { type: "image", reference: "s3://bucket/named", uuid: "mine" },
              { type: "image", reference: "data:image/png;base64,AAAA" },
              { type: "image_embeds", reference: "data:;base64,AAAA" },
              { type: "image_embeds", reference: "data:;base64,BBBB", grid: [1, 4, 6] },
              { type: "image_embeds", reference: "s3://bucket/embeds", grid: [1, 2, 2] },
            ],
          },
          { role: "assistant", content: "" },
          { role: "assistant", content: [{ type: "text", text: "three" }] },
        ],
      },
      samplingParams: {
        temperature: 0.5,
        topP: 0.9,
        topK: 40,
        minP: 0.1,
        presencePenalty: 0.5,
        frequencyPenalty: -0.5,
        repetitionPenalty: 1.1,
        logitBias: { 5: 1.5 },
        allowedTokenIds: [5, 6],
        badWords: ["red"],
        seed: 128,
        maxTokens: 7,
        minTokens: 2,
        stop: ["END"],
        stopTokenIds: [3, 4],
        ignoreEos: true,
        repetitionDetection: { maxPatternSize: 8, minPatternSize: 0, minCount: 3 },
        includeStopStringInOutput: true,
        skipSpecialTokens: false,
        keptSpecialTokens: [],
        reasoning: null,
        logprobs: 2,
        promptLogprobs: 1,
        structuredOutput: { kind: "json-schema", schema: '{"type":"object"}' },
        extraArgs: { target: 5, names: ["a", 1, true] },
      },
    },
  ]);
});

test.for<[object, unknown]>([
  [{ response_format: { type: "text" } }, null],
  [{ response_format: { type: "json_object" } }, { kind: "json-object" }],
  [{ response_format: { type: "json_object", schema: null } }, { kind: "json-object" }],
  [
    { response_format: { type: "json_object", schema: { type: "boolean" } } },
    { kind: "json-schema", schema: '{"type":"boolean"}' },
  ],
  [
    { response_format: { type: "json_object", value: { type: "boolean" } } },
    { kind: "json-schema", schema: '{"type":"boolean"}' },
  ],
  [
    { response_format: { type: "json", value: { type: "boolean" } } },
    { kind: "json-schema", schema: '{"type":"boolean"}' },
  ],
  [{ response_format: { type: "regex", value: "a|b" } }, { kind: "regex", pattern: "a|b" }],
  [{ guided_json: { type: "string" } }, { kind: "json-schema", schema: '{"type":"string"}' }],
  [
    { guided_regex: "a|b", guided_choice: null, guided_decoding_backend: "xgrammar" },
    { kind: "regex", pattern: "a|b" },
  ],
  [
    { guided_choice: ["a", "b"], structured_outputs: null },
    { kind: "choice", choices: ["a", "b"] },
  ],
  [{ guided_grammar: "root ::= [0-9]" }, { kind: "grammar", grammar: "root ::= [0-9]" }],
  [{ response_format: null, structured_outputs: { json_object: true } }, { kind: "json-object" }],
  [{ structured_outputs: { json: { type: "string" } } }, { kind: "json-schema", schema: '{"type":"string"}' }],
  [{ structured_outputs: { json: '{"type": "string"}' } }, { kind: "json-schema", schema: '{"type": "string"}' }],
  [{ structured_outputs: { regex: "a|b", choice: null } }, { kind: "regex", pattern: "a|b" }],
  [{ structured_outputs: { choice: ["a", "b"] } }, { kind: "choice", choices: ["a", "b"] }],
  [{ structured_outputs: { grammar: "root ::= [0-9]" } }, { kind: "grammar", grammar: "root ::= [0-9]" }],
])("%j is one structured output", async ([fields, expected]) => {
  const { post, engine } = createTestApp();
  expect((await post(path, { ...chatBody, ...fields })).status).toBe(200);
  expect(engine.requests[0]!.samplingParams.structuredOutput).toEqual(expected);
});

test("the service's arguments for logits processors apply unless a request sets the same name", async () => {
  const { post, engine } = createTestApp({ config: { defaultExtraArguments: { target_token: 5, names: ["a"] } } });
  await post(path, chatBody);
  await post(path, { ...chatBody, vllm_xargs: { target_token: 7, other: true } });
  expect(engine.requests.map(({ samplingParams }) => samplingParams.extraArgs)).toEqual([
    { target_token: 5, names: ["a"] },
    { target_token: 7, names: ["a"], other: true },
  ]);
});

const twoChoices = [
  { index: 1, text: "B", numOutputTokens: 1 },
  { index: 0, text: "A", numOutputTokens: 1 },
  { index: 1, text: "b", numOutputTokens: 2, finishReason: "stop" as const },
  { index: 0, text: "a", numOutputTokens: 2, finishReason: "length" as const },
];

test("several choices have different indices, and their prompt counts once", async () => {
  const response = await createTestApp({ script: twoChoices }).post(path, { ...chatBody, n: 2 });
  expect(await response.json()).toMatchObject({
    choices: [
      { index: 0, message: { content: "Aa" }, finish_reason: "length" },
      { index: 1, message: { content: "Bb" }, finish_reason: "stop" },
    ],
    usage: { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9 },
  });
});

test("a stream of several choices has a role chunk and a finish chunk for each", async () => {
  const { post } = createTestApp({ script: twoChoices });
  const stream = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  const blocks = (await (await post(path, { ...chatBody, n: 2, ...stream })).text()).trimEnd().split("\n\n");
  const chunks = blocks.slice(0, -1).map((block) => JSON.parse(block.slice("data: ".length)) as ChoiceChunk);
  const seen = chunks.map(({ choices: [choice], usage }) => [
    choice?.index,
    choice?.delta.content ?? null,
    choice?.finish_reason,
    usage.prompt_tokens,
    usage.completion_tokens,
  ]);
  expect(seen).toEqual([
    [1, "", null, 5, 0],
    [1, "B", null, 5, 1],
    [0, "", null, 5, 0],
    [0, "A", null, 5, 1],
    [1, "b", "stop", 5, 2],
    [0, "a", "length", 5, 2],
    [undefined, null, undefined, 5, 4],
  ]);
});

interface ChoiceChunk {
  readonly choices: readonly {
    readonly index: number;
    readonly delta: { readonly content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

test("fields that a request leaves out have the checkpoint's defaults", async () => {
  const { post, engine } = createTestApp();
  await post(path, { ...chatBody, top_p: 0.5, top_k: null });
  await post(path, { ...chatBody, top_k: 3, max_tokens: 9 });
  expect(engine.requests.map(({ samplingParams }) => samplingParams)).toMatchObject([
    { topP: 0.5, topK: 50, maxTokens: 256, temperature: 1 },
    { topP: 1, topK: 3, maxTokens: 9 },
  ]);
});

describe("a stream", () => {
  test("has a role chunk, content chunks, one finish chunk and [DONE], byte by byte", async () => {
    const response = await createTestApp().post(path, { ...chatBody, stream: true });
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(response.headers.get("cache-control")).toBe("no-cache");
    const text = await response.text();
    const head =
      /^data: (\{"id":"chatcmpl-[0-9a-f]{32}","created":\d+,"model":"tiny","object":"chat.completion.chunk",)/;
    const start = `data: ${head.exec(text)![1]}`;
    expect(text).toBe(
      [
        `${start}"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
        `${start}"choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}]}`,
        `${start}"choices":[{"index":0,"delta":{"content":"lo"},"logprobs":null,"finish_reason":null}]}`,
        `${start}"choices":[{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}`,
        "data: [DONE]",
        "",
      ].join("\n\n"),
    );
  });

  test("reports the usage in a separate chunk if requested", async () => {
    const { post } = createTestApp();
    const events = await readEvents(
      await post(path, { ...chatBody, stream: true, stream_options: { include_usage: true } }),
    );
    expect(events.at(-1)).toBe("data: [DONE]");
    expect(events.at(-2)).toMatchObject({ choices: [], usage });
    const others = events.slice(0, -2).map((event) => (event as { readonly usage?: unknown }).usage);
    expect(new Set(others)).toEqual(new Set([null]));
  });

  test("reports the usage so far in every chunk if requested", async () => {
    const streamOptions = { include_usage: true, continuous_usage_stats: true };
    const { post } = createTestApp();
    const events = await readEvents(await post(path, { ...chatBody, stream: true, stream_options: streamOptions }));
    const counts = events.slice(0, -1).map((event) => (event as { usage: typeof usage }).usage.completion_tokens);
    expect(counts).toEqual([0, 1, 2, 3, 3]);
    const alone = await post(path, { ...chatBody, stream: true, stream_options: { continuous_usage_stats: true } });
    expect(await alone.text()).not.toContain("usage");
  });

  test("has no chunk for outputs without text, and an empty delta for an empty end", async () => {
    const { post } = createTestApp({ script: ["", "a", "", { text: "", finishReason: "length" }] });
    const events = await readEvents(await post(path, { ...chatBody, stream: true }));
    expect(events).toMatchObject([
      { choices: [{ delta: { role: "assistant" } }] },
      { choices: [{ delta: { content: "a" } }] },
      { choices: [{ delta: {}, finish_reason: "length" }] },
      "data: [DONE]",
    ]);
  });

  test("ends with an error event and [DONE] when generation fails after the first token", async () => {
    const { post, log } = createTestApp({ script: ["a", new Error("at /srv/secret.ts")] });
    const response = await post(path, { ...chatBody, stream: true }, { "x-request-id": "r1" });
    expect(response.status).toBe(200);
    const events = await readEvents(response);
    expect(events.slice(2)).toEqual([
      {
        error: {
          message: "Internal error; the log describes it under request id r1.",
          type: "server_error",
          param: null,
          code: "internal_error",
        },
      },
      "data: [DONE]",
    ]);
    expect(log).toContainEqual(expect.objectContaining({ level: "error", message: "A stream failed." }));
  });

  test("sends comments while the engine is silent", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { post } = createTestApp({ script: [promise, "late"], keepAliveMs: 1 });
    const response = await post(path, { ...chatBody, stream: true });
    const reader = response.body!.getReader();
    const first = new TextDecoder().decode((await reader.read()).value);
    expect(first).toBe(": keep-alive\n\n");
    resolve();
    let text = "";
    for (let result = await reader.read(); !result.done; result = await reader.read()) {
      text += new TextDecoder().decode(result.value);
    }
    expect(text).toMatch(/"content":"late"[\s\S]*data: \[DONE\]\n\n$/);
  });

  test("requests the next output from the engine only when the reader has taken the last", async () => {
    let numAsked = 0;
    const script = Array.from({ length: 100 }, (_, step) => `${step} `);
    const counted = new Proxy(script, {
      get(target, key) {
        if (key !== "entries") return Reflect.get(target, key) as unknown;
        return function* entries() {
          for (const entry of target.entries()) {
            numAsked++;
            yield entry;
          }
        };
      },
    });
    const { post } = createTestApp({ script: counted });
    const reader = (await post(path, { ...chatBody, stream: true })).body!.getReader();
    for (let chunk = 0; chunk < 4; chunk++) await reader.read();
    expect(numAsked).toBeLessThan(10);
    await reader.cancel();
  });

  test("frees the sequence when its reader disconnects", async () => {
    const { post, engine, service, log } = createTestApp({ script: ["a", hang] });
    const reader = (await post(path, { ...chatBody, stream: true })).body!.getReader();
    await reader.read();
    expect(service.numRequests).toBe(1);
    await reader.cancel();
    await expect.poll(() => engine.numAborted).toBe(1);
    expect(service.numRequests).toBe(0);
    expect(log.at(-1)).toMatchObject({ message: "request", finishReason: "abort" });
  });
});

describe("logprobs", () => {
  const entry = (token: string, logprob: number): DecodedLogprob => ({
    tokenId: 1,
    token,
    logprob,
    rank: 1,
    bytes: [...Buffer.from(token)],
  });
  const sampled = (token: string): DecodedTokenLogprobs[] => [
    { sampled: entry(token, -0.5), top: [entry(token, -0.5), entry("x", Number.NEGATIVE_INFINITY)] },
  ];
  const script = [
    { text: "a", logprobs: sampled("a") },
    { text: "", logprobs: sampled("\uFFFD") },
    { text: "b", logprobs: sampled("b"), finishReason: "stop" as const },
  ];
  const ask = { ...chatBody, logprobs: true, top_logprobs: 2 };

  test("have one entry per token, with minus infinity clamped", async () => {
    const { choices } = (await (await createTestApp({ script }).post(path, ask)).json()) as {
      choices: { logprobs: { content: { token: string }[] } }[];
    };
    expect(choices[0]!.logprobs.content.map(({ token }) => token)).toEqual(["a", "\uFFFD", "b"]);
    expect(choices[0]!.logprobs.content[0]).toEqual({
      token: "a",
      logprob: -0.5,
      bytes: [97],
      top_logprobs: [
        { token: "a", logprob: -0.5, bytes: [97] },
        { token: "x", logprob: -9999, bytes: [120] },
      ],
    });
  });

  test("of tokens without text come with the next chunk of a stream", async () => {
    const response = await createTestApp({ script }).post(path, { ...ask, stream: true });
    expect(await readEvents(response)).toMatchObject([
      { choices: [{ logprobs: null }] },
      { choices: [{ logprobs: { content: [{ token: "a" }] } }] },
      { choices: [{ logprobs: { content: [{ token: "\uFFFD" }, { token: "b" }] } }] },
      "data: [DONE]",
    ]);
  });
});

test("one request above the limit gets 429, and the next one after a request has ended is served", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { post } = createTestApp({ script: [promise, "done"], maxNumRequests: 1 });
  const first = post(path, chatBody);
  await Promise.resolve();
  const refused = await post(path, chatBody);
  expect(refused.status).toBe(429);
  expect(refused.headers.get("retry-after")).toBe("2");
  expect(await refused.json()).toMatchObject({
    error: { message: "1 requests are in progress; the limit is 1. MAX_NUM_SEQS and MAX_NUM_WAITING set the limit." },
  });
  resolve();
  expect((await first).status).toBe(200);
  expect((await post(path, chatBody)).status).toBe(200);
});

test("a request counts as finished however it ends", async () => {
  const { post, service } = createTestApp({ script: [new EngineError("queue_full", "Full.")] });
  for (const body of ["{", { ...chatBody, n: 2 }, chatBody, { ...chatBody, stream: true }]) await post(path, body);
  expect(service.numRequests).toBe(0);
});
