/**
 * Thinking, text and two calls in one turn, as each client joins them from a stream. The engine's output is scripted,
 * so that the calls are known and the stream can end, or be left, in the middle of one.
 */
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { HumanMessage } from "@langchain/core/messages";
import type { AIMessageChunk } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { streamText, tool } from "ai";
import type { LanguageModel } from "ai";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { z } from "zod";

import { hang } from "../../support/engine/scripted-engine.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";

const model = "tiny";
const question = "How is the weather?";
const description = "The weather of a city.";
const schema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
} as const;

interface Turn {
  readonly text: string;
  /** Name and arguments: an object if they are whole, otherwise the text so far or what the client makes of it. */
  readonly calls: readonly (readonly [name: string, input: unknown])[];
  /** In the client's words. */
  readonly reason: unknown;
}

/** Streams an answer to the end. */
type AskClient = (baseUrl: string, signal?: AbortSignal) => Promise<Turn>;

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return json;
  }
}

const tools: OpenAI.ChatCompletionFunctionTool[] = [
  { type: "function", function: { name: "get_weather", description, parameters: schema } },
];

async function askChat(baseUrl: string, signal?: AbortSignal): Promise<Turn> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const body = { model, messages: [{ role: "user" as const, content: question }], tools };
  const stream = client.chat.completions.stream(body, { signal: signal ?? null });
  const { message, finish_reason: reason } = (await stream.finalChatCompletion()).choices[0]!;
  const calls = (message.tool_calls ?? []).flatMap((call) => (call.type === "function" ? [call.function] : []));
  return { text: message.content ?? "", calls: calls.map((call) => [call.name, parsed(call.arguments)]), reason };
}

async function askResponses(baseUrl: string, signal?: AbortSignal): Promise<Turn> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const stream = client.responses.stream(
    { model, input: question, tools: [{ type: "function", name: "get_weather", parameters: schema, strict: false }] },
    { signal: signal ?? null },
  );
  const { output_text: text, output, status, incomplete_details: details } = await stream.finalResponse();
  const calls = output.flatMap((item) => (item.type === "function_call" ? [item] : []));
  return { text, calls: calls.map((call) => [call.name, parsed(call.arguments)]), reason: details?.reason ?? status };
}

async function askMessages(baseUrl: string, signal?: AbortSignal): Promise<Turn> {
  const client = new Anthropic({ baseURL: baseUrl, apiKey: "none", maxRetries: 0 });
  const stream = client.messages.stream(
    {
      model,
      max_tokens: 99,
      messages: [{ role: "user", content: question }],
      tools: [{ name: "get_weather", description, input_schema: schema as unknown as Anthropic.Tool.InputSchema }],
      tool_choice: { type: "auto" },
    },
    { signal: signal ?? null },
  );
  const { content, stop_reason: reason } = await stream.finalMessage();
  return {
    text: content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join(""),
    calls: content.flatMap((block) => (block.type === "tool_use" ? [[block.name, block.input] as const] : [])),
    reason,
  };
}

function askAiSdk(create: (baseURL: string) => LanguageModel): AskClient {
  return async (baseUrl, signal) => {
    const result = streamText({
      model: create(`${baseUrl}/v1`),
      prompt: question,
      tools: { get_weather: tool({ description, inputSchema: z.object({ city: z.string() }) }) },
      providerOptions: { openai: { store: false } },
      maxRetries: 0,
      ...(signal && { abortSignal: signal }),
      onError: () => {},
    });
    const calls = (await result.toolCalls).map((call) => [call.toolName, call.input] as const);
    return { text: await result.text, calls, reason: await result.finishReason };
  };
}

function askLangChain(useResponsesApi: boolean): AskClient {
  return async (baseUrl, signal) => {
    const chat = new ChatOpenAI({
      model,
      useResponsesApi,
      apiKey: "none",
      maxRetries: 0,
      configuration: { baseURL: `${baseUrl}/v1` },
    }).bindTools(tools);
    let joined: AIMessageChunk | null = null;
    for await (const chunk of await chat.stream([new HumanMessage(question)], signal ? { signal } : {})) {
      joined = joined === null ? chunk : joined.concat(chunk);
    }
    const calls = [
      ...joined!.tool_calls!.map(({ name, args }) => [name, args] as const),
      ...joined!.invalid_tool_calls!.map(({ name, args }) => [name ?? "", args] as const),
    ];
    const {
      finish_reason: reason,
      status,
      incomplete_details: details,
    } = joined!.response_metadata as {
      finish_reason?: string;
      status?: string;
      incomplete_details?: { reason: string } | null;
    };
    return { text: joined!.text, calls, reason: reason ?? details?.reason ?? status };
  };
}

interface Client {
  readonly name: string;
  readonly ask: AskClient;
  readonly reasons: { readonly called: string; readonly cut: string };
  /** What the client makes of the arguments of a call that was cut off. */
  readonly cutInput: unknown;
}

const whole = { city: "Oslo" };
const cutJson = '{"city": "Ro';
/** LangChain closes what is open. */
const repaired = { city: "Ro" };
const clients: readonly Client[] = [
  { name: "openai, chat", ask: askChat, reasons: { called: "tool_calls", cut: "length" }, cutInput: cutJson },
  {
    name: "openai, Responses",
    ask: askResponses,
    reasons: { called: "completed", cut: "max_output_tokens" },
    cutInput: cutJson,
  },
  { name: "Anthropic", ask: askMessages, reasons: { called: "tool_use", cut: "max_tokens" }, cutInput: {} },
  {
    name: "AI SDK, chat",
    ask: askAiSdk((baseURL) => createOpenAICompatible({ name: "fovea", baseURL })(model)),
    reasons: { called: "tool-calls", cut: "length" },
    cutInput: cutJson,
  },
  {
    name: "AI SDK, Responses",
    ask: askAiSdk((baseURL) => createOpenAI({ baseURL, apiKey: "none" })(model)),
    reasons: { called: "tool-calls", cut: "length" },
    cutInput: cutJson,
  },
  {
    name: "LangChain, chat",
    ask: askLangChain(false),
    reasons: { called: "tool_calls", cut: "length" },
    cutInput: repaired,
  },
  {
    name: "LangChain, Responses",
    ask: askLangChain(true),
    reasons: { called: "completed", cut: "max_output_tokens" },
    cutInput: repaired,
  },
];

const answer =
  "<think>\nTwo cities.\n</think>\n\nLet me look.\n" +
  '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n' +
  '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const cutAnswer = answer.slice(0, answer.indexOf("Rome") + 2);

/** Three characters are a token. */
function pieces(text: string): Script {
  return text
    .match(/[^]{1,3}/g)!
    .map((piece, index) => (index === 0 ? { text: piece, reasoningStart: "before" } : piece));
}

describe.for(clients)("$name", ({ ask, reasons, cutInput }) => {
  test("joins the text and both calls", async () => {
    const app = createTestApp({ script: pieces(answer), config: { outputFormats: thinkingFormats } });
    await using server = await serveApp(app);
    const turn = await ask(server.baseUrl);
    const calls = [
      ["get_weather", whole],
      ["get_weather", { city: "Rome" }],
    ];
    expect(turn).toEqual({ text: expect.stringMatching(/^\s*Let me look\.\s*$/), calls, reason: reasons.called });
  });

  test("keeps the first call of an answer that the limit of tokens ends within the second", async () => {
    const script: Script = [...pieces(cutAnswer), { text: "", finishReason: "length" }];
    await using server = await serveApp(createTestApp({ script, config: { outputFormats: thinkingFormats } }));
    const turn = await ask(server.baseUrl);
    const calls = [
      ["get_weather", whole],
      ["get_weather", cutInput],
    ];
    expect(turn).toEqual({ text: expect.stringContaining("Let me look."), calls, reason: reasons.cut });
  });

  test("frees the request when it leaves within a call", async () => {
    const app = createTestApp({ script: [...pieces(cutAnswer), hang], config: { outputFormats: thinkingFormats } });
    await using server = await serveApp(app);
    const controller = new AbortController();
    const asked = ask(server.baseUrl, controller.signal).then(
      () => null,
      (error: unknown) => error,
    );
    await expect.poll(() => app.engine.numRunning).toBe(1);
    controller.abort();
    expect(await asked).toBeInstanceOf(Error);
    await expect.poll(() => [app.engine.numAborted, app.engine.numRunning, app.service.numRequests]).toEqual([1, 0, 0]);
  });
});
