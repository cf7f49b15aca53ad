/** Thinking, texts and calls in the answers of Responses and Messages. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { ChatPromptInput } from "../../../engine/index.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { readEvents } from "../../support/requests/read-events.ts";
import type { NamedEvent } from "../../support/requests/read-events.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const checkOpenAi = wireSchemas("openai-responses.json");
const checkAnthropic = wireSchemas("anthropic-messages.json");

const schema = { type: "object", properties: { city: { type: "string" } } };
const call = (city: string): string =>
  `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
const thinkingAndCalls = `<think>\nTwo cities.\n</think>\n\nLet me look.\n${call("Oslo")}\n${call("Rome")}`;

const toScript = (pieces: readonly string[]): Script =>
  pieces.map((text, index) => (index === 0 ? { text, reasoningStart: "before" } : text));

const responseBody = { input: "Which?", tools: [{ type: "function", name: "get_weather", parameters: schema }] };
const messageBody = {
  max_tokens: 99,
  messages: [{ role: "user", content: "Which?" }],
  tools: [{ name: "get_weather", input_schema: schema }],
};

async function post(path: string, body: object, script: Script): Promise<Response> {
  return createTestApp({ script, config: { outputFormats: thinkingFormats } }).post(path, body);
}

interface ResponseAnswer {
  readonly status: string;
  readonly output: readonly Record<string, unknown>[];
  readonly usage: { readonly output_tokens_details: { readonly reasoning_tokens: number } };
}

async function respond(script: Script): Promise<ResponseAnswer> {
  const answer = (await (await post("/v1/responses", responseBody, script)).json()) as ResponseAnswer;
  checkOpenAi("Response", answer);
  return answer;
}

async function responseEvents(script: Script): Promise<NamedEvent[]> {
  const events = await readEvents(await post("/v1/responses", { ...responseBody, stream: true }, script));
  for (const { data } of events) checkOpenAi("ResponseStreamEvent", data);
  return events;
}

interface MessageAnswer {
  readonly stop_reason: string;
  readonly content: readonly Record<string, unknown>[];
  readonly usage: object;
}

async function ask(script: Script): Promise<MessageAnswer> {
  const answer = (await (await post("/v1/messages", messageBody, script)).json()) as MessageAnswer;
  checkAnthropic("Message", answer);
  return answer;
}

async function messageEvents(script: Script): Promise<NamedEvent[]> {
  const events = await readEvents(await post("/v1/messages", { ...messageBody, stream: true }, script));
  for (const { data } of events) checkAnthropic("RawMessageStreamEvent", data);
  return events;
}

/** Ids are random. */
const withoutIds = (value: object): unknown =>
  JSON.parse(JSON.stringify(value, (key, member: unknown) => (/^(id|call_id|item_id)$/.test(key) ? "id" : member)));

/** Ways to divide the text into pieces. */
const splits = (text: string) =>
  fc
    .uniqueArray(fc.integer({ min: 1, max: text.length - 1 }), { maxLength: 40 })
    .map((cuts) => cuts.sort((left, right) => left - right))
    .map((cuts) => [0, ...cuts].map((start, index) => text.slice(start, cuts[index])));

describe("/v1/responses", () => {
  test("has an item for the thinking, the text and each call", async () => {
    const answer = await respond(toScript([thinkingAndCalls]));
    expect(answer.status).toBe("completed");
    expect(answer.output).toEqual([
      {
        id: expect.stringMatching(/^rs_/),
        type: "reasoning",
        status: "completed",
        summary: [],
        content: [{ type: "reasoning_text", text: "Two cities." }],
      },
      {
        id: expect.stringMatching(/^msg_/),
        type: "message",
        status: "completed",
        role: "assistant",
        content: [{ type: "output_text", text: "Let me look.", annotations: [], logprobs: [] }],
      },
      ...["Oslo", "Rome"].map((city) => ({
        id: expect.stringMatching(/^fc_/),
        type: "function_call",
        status: "completed",
        call_id: expect.stringMatching(/^call_/),
        name: "get_weather",
        arguments: `{"city": "${city}"}`,
      })),
    ]);
  });

  test("gives thinking in the form in which clients without stored items send it back", async () => {
    const include = { include: ["reasoning.encrypted_content"], store: false };
    const script = toScript(["<think>Zwei Städte.</think>Yes."]);
    const events = await readEvents(await post("/v1/responses", { ...responseBody, ...include, stream: true }, script));
    for (const { data } of events) checkOpenAi("ResponseStreamEvent", data);
    const { response } = events.at(-1)!.data as { response: ResponseAnswer };
    const [item] = response.output;
    expect(events.find(({ name }) => name === "response.output_item.done")!.data).toMatchObject({ item });
    const { encrypted_content } = item!;

    const { post: send, engine } = createTestApp();
    for (const encrypted of [encrypted_content, "gAAAAA of another service"]) {
      const thought = { type: "reasoning", id: "rs_1", summary: [], encrypted_content: encrypted };
      const input = [{ role: "user", content: "Which?" }, thought, { role: "assistant", content: "Yes." }];
      const answer = await send("/v1/responses", { input: [...input, { role: "user", content: "Sure?" }] });
      expect(answer.status).toBe(200);
    }
    const turns = engine.requests.map(({ prompt }) => (prompt as ChatPromptInput).messages.at(1));
    expect(turns).toEqual([
      { role: "assistant", content: "Yes.", reasoning: "Zwei Städte." },
      { role: "assistant", content: "Yes." },
    ]);
  });

  test.for([true, false])("has logprobs of the answer only, with include_reasoning: %s", async (isIncluded) => {
    const outputOf = (text: string) => {
      const sampled = { tokenId: 7, token: text, bytes: [...Buffer.from(text)], logprob: -0.5, rank: 1 };
      return { text, logprobs: [{ sampled, top: [] }] };
    };
    const rest = ["Two ", "cities.", "</think>", "\n\n", "Yes", "."].map(outputOf);
    const script = [{ ...outputOf("<think>"), reasoningStart: "before" as const }, ...rest];
    const fields = { include: ["message.output_text.logprobs"], include_reasoning: isIncluded };
    const response = await post("/v1/responses", { ...responseBody, ...fields }, script);
    const { output } = (await response.json()) as ResponseAnswer;
    expect(output.at(-1)!.content).toMatchObject([{ text: "Yes.", logprobs: [{ token: "Yes" }, { token: "." }] }]);
  });

  test("streams items one after the other, each with its deltas between added and done", async () => {
    const events = await responseEvents(toScript(["<think>Two ", "cities.</think>", "Let me look.", call("Oslo")]));
    const names = events.map(({ name }) => name!.replace("response.", ""));
    const seen = names.filter((name, index) => name !== names[index - 1]);
    expect(seen).toEqual([
      "created",
      "in_progress",
      "output_item.added",
      "content_part.added",
      "reasoning_text.delta",
      "reasoning_text.done",
      "content_part.done",
      "output_item.done",
      "output_item.added",
      "content_part.added",
      "output_text.delta",
      "output_text.done",
      "content_part.done",
      "output_item.done",
      "output_item.added",
      "function_call_arguments.delta",
      "function_call_arguments.done",
      "output_item.done",
      "completed",
    ]);
  });

  test("counts the tokens of thinking", async () => {
    const script = [
      { text: "<think>", tokenIds: [1], reasoningStart: "before" as const },
      { text: "Two", tokenIds: [2, 3] },
      { text: "", tokenIds: [4] },
      { text: "</think>Yes.", tokenIds: [5] },
    ];
    const { usage } = await respond(script);
    expect(usage.output_tokens_details.reasoning_tokens).toBe(3);
  });

  test("has the call that was cut off as an incomplete item, with the arguments so far", async () => {
    const { status, output } = await respond([
      { text: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os', finishReason: "length" },
    ]);
    expect(status).toBe("incomplete");
    expect(output).toMatchObject([{ type: "function_call", status: "incomplete", arguments: '{"city": "Os' }]);
  });

  test("gives the same answer for any division of its text, as a whole and as a stream", async () => {
    const whole = withoutIds((await respond(toScript([thinkingAndCalls]))).output);
    await fc.assert(
      fc.asyncProperty(splits(thinkingAndCalls), async (pieces) => {
        const script = toScript(pieces);
        expect(withoutIds((await respond(script)).output)).toEqual(whole);
        const events = await responseEvents(script);
        const { response } = events.at(-1)!.data as { response: ResponseAnswer };
        expect(withoutIds(response.output)).toEqual(whole);
        expect(textsOfDeltas(events)).toEqual(["Two cities.", "Let me look.", '{"city": "Oslo"}', '{"city": "Rome"}']);
      }),
      { numRuns: 25 },
    );
  });
});

/** By item, in the order of the items. */
function textsOfDeltas(events: readonly NamedEvent[]): string[] {
  const texts: string[] = [];
  for (const { name, data } of events) {
    if (!name!.endsWith(".delta")) continue;
    const index = data["output_index"] as number;
    texts[index] = `${texts[index] ?? ""}${String(data["delta"])}`;
  }
  return texts;
}

describe("/v1/messages", () => {
  test("has a block for the thinking, the text and each call", async () => {
    const answer = await ask(toScript([thinkingAndCalls]));
    expect(answer.stop_reason).toBe("tool_use");
    expect(answer.content).toEqual([
      { type: "thinking", thinking: "Two cities.", signature: expect.stringMatching(/./) },
      { type: "text", text: "Let me look.", citations: null },
      ...["Oslo", "Rome"].map((city) => ({
        type: "tool_use",
        id: expect.stringMatching(/^call_/),
        name: "get_weather",
        input: { city },
        caller: { type: "direct" },
      })),
    ]);
  });

  test("streams blocks one after the other, each with its deltas between start and stop", async () => {
    const events = await messageEvents(toScript(["<think>Two ", "cities.</think>", "Let me look.", call("Oslo")]));
    const seen = events.map(({ name, data }) => `${name} ${(data["index"] as number | undefined) ?? ""}`.trim());
    expect(seen.filter((name, index) => name !== seen[index - 1])).toEqual([
      "message_start",
      ...[0, 1, 2].flatMap((index) => [
        `content_block_start ${index}`,
        `content_block_delta ${index}`,
        `content_block_stop ${index}`,
      ]),
      "message_delta",
      "message_stop",
    ]);
    // Clients leave out thinking without a signature when they send the answer back.
    const deltasOfThinking = events.filter(({ data }) => data["index"] === 0).map(({ data }) => data["delta"]);
    expect(deltasOfThinking.at(-2)).toEqual({ type: "signature_delta", signature: expect.stringMatching(/./) });
    expect(events.find(({ data }) => data["index"] === 2)!.data).toMatchObject({
      content_block: { type: "tool_use", name: "get_weather", input: {} },
    });
    expect(events.at(-2)!.data).toMatchObject({ delta: { stop_reason: "tool_use" } });
  });

  test("has an empty input for a call that was cut off", async () => {
    const { stop_reason, content } = await ask([
      { text: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os', finishReason: "length" },
    ]);
    expect(stop_reason).toBe("max_tokens");
    expect(content).toMatchObject([{ type: "tool_use", input: {} }]);
  });

  test("hides the thinking that the request omits", async () => {
    const body = { ...messageBody, thinking: { type: "adaptive", display: "omitted" } };
    const response = await post("/v1/messages", body, toScript(["<think>Hm.</think>Yes."]));
    expect(((await response.json()) as MessageAnswer).content).toMatchObject([{ type: "text", text: "Yes." }]);
  });

  test("gives the same answer for any division of its text, as a whole and as a stream", async () => {
    const whole = withoutIds((await ask(toScript([thinkingAndCalls]))).content);
    await fc.assert(
      fc.asyncProperty(splits(thinkingAndCalls), async (pieces) => {
        const script = toScript(pieces);
        expect(withoutIds((await ask(script)).content)).toEqual(whole);
        expect(withoutIds(joinBlocks(await messageEvents(script)))).toEqual(whole);
      }),
      { numRuns: 25 },
    );
  });
});

interface Delta {
  readonly text?: string;
  readonly thinking?: string;
  readonly signature?: string;
  readonly partial_json?: string;
}

/** The blocks as a client builds them. */
function joinBlocks(events: readonly NamedEvent[]): object[] {
  const blocks: Record<string, unknown>[] = [];
  const json: string[] = [];
  for (const { data } of events) {
    const index = data["index"] as number;
    if (data["type"] === "content_block_start") blocks.push({ ...(data["content_block"] as object) });
    if (data["type"] !== "content_block_delta") continue;
    const { text, thinking, signature, partial_json: partial } = data["delta"] as Delta;
    const block = blocks.at(index)!;
    if (text !== undefined) block["text"] = `${String(block["text"])}${text}`;
    if (thinking !== undefined) block["thinking"] = `${String(block["thinking"])}${thinking}`;
    if (signature !== undefined) block["signature"] = signature;
    if (partial === undefined) continue;
    json[index] = `${json[index] ?? ""}${partial}`;
  }
  for (const [index, text] of json.entries()) if (text !== undefined) blocks.at(index)!["input"] = JSON.parse(text);
  return blocks;
}
