/**
 * Agents: each client runs its own loop of calls and results. The engine's outputs are scripted, so that the model calls
 * a tool first and answers then, and the conversation that comes back is known.
 */
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import type { BaseMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, stepCountIs, tool } from "ai";
import type { LanguageModel } from "ai";
import OpenAI from "openai";
import type { RunnableToolFunctionWithParse } from "openai/lib/RunnableFunction";
import { describe, expect, test } from "vitest";
import { z } from "zod";

import type { ChatMessage } from "../../../engine/index.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";

const model = "tiny";
const question = "What is on the desk?";
const description = "Takes a photo of a place.";
const schema = { type: "object" as const, properties: { place: { type: "string" as const } }, required: ["place"] };
const base64 = "iVBORw0KGgo=";
const pictureUrl = `data:image/png;base64,${base64}`;

/** Returns the text of the last answer. */
type RunAgent = (baseUrl: string) => Promise<string | null>;

async function runChat(baseUrl: string): Promise<string | null> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const photograph: RunnableToolFunctionWithParse<{ place: string }> = {
    type: "function",
    function: {
      name: "photograph",
      description,
      parameters: schema,
      parse: (text) => z.object({ place: z.string() }).parse(JSON.parse(text)),
      function: () => "A photo",
    },
  };
  const messages = [{ role: "user" as const, content: question }];
  return client.chat.completions.runTools({ model, messages, stream: true, tools: [photograph] }).finalContent();
}

async function runResponses(baseUrl: string): Promise<string> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const tools: OpenAI.Responses.FunctionTool[] = [
    { type: "function", name: "photograph", description, parameters: schema, strict: false },
  ];
  const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: question }];
  for (;;) {
    const response = await client.responses.stream({ model, input, tools, store: false }).finalResponse();
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return response.output_text;
    // Items are sent back as they came, except for the client's own additions.
    input.push(...(JSON.parse(JSON.stringify(response.output)) as OpenAI.Responses.ResponseInputItem[]));
    for (const { call_id } of calls) {
      input.push({
        type: "function_call_output",
        call_id,
        output: [
          { type: "input_text", text: "A photo" },
          { type: "input_image", image_url: pictureUrl, detail: "auto" },
        ],
      });
    }
  }
}

async function runMessages(baseUrl: string): Promise<string> {
  const client = new Anthropic({ baseURL: baseUrl, apiKey: "none", maxRetries: 0 });
  const runner = client.beta.messages.toolRunner({
    model,
    max_tokens: 99,
    messages: [{ role: "user", content: question }],
    stream: true,
    tools: [
      betaTool({
        name: "photograph",
        description,
        inputSchema: schema,
        run: () => [
          { type: "text", text: "A photo" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: base64 } },
        ],
      }),
    ],
  });
  const { content } = await runner.runUntilDone();
  return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("");
}

function runAiSdk(create: (baseURL: string) => LanguageModel): RunAgent {
  return async (baseUrl) => {
    const photograph = tool({
      description,
      inputSchema: z.object({ place: z.string() }),
      execute: () => "A photo",
      toModelOutput: () => ({
        type: "content",
        value: [
          { type: "text", text: "A photo" },
          { type: "file", data: { type: "data", data: base64 }, mediaType: "image/png" },
        ],
      }),
    });
    const { text } = await generateText({
      model: create(`${baseUrl}/v1`),
      prompt: question,
      tools: { photograph },
      stopWhen: stepCountIs(5),
      providerOptions: { openai: { store: false } },
      maxRetries: 0,
    });
    return text;
  };
}

function runLangChain(useResponsesApi: boolean): RunAgent {
  return async (baseUrl) => {
    const chat = new ChatOpenAI({
      model,
      useResponsesApi,
      apiKey: "none",
      maxRetries: 0,
      configuration: { baseURL: `${baseUrl}/v1` },
    }).bindTools([{ type: "function", function: { name: "photograph", description, parameters: schema } }]);
    const messages: BaseMessage[] = [new HumanMessage(question)];
    for (;;) {
      const answer = await chat.invoke(messages);
      const calls = [...(answer.tool_calls ?? []), ...(answer.invalid_tool_calls ?? [])];
      if (calls.length === 0) return answer.text;
      messages.push(answer);
      for (const { id } of calls) {
        const content = [
          { type: "text", text: "A photo" },
          { type: "image_url", image_url: { url: pictureUrl } },
        ];
        messages.push(new ToolMessage({ content, tool_call_id: id ?? "" }));
      }
    }
  };
}

interface Agent {
  readonly name: string;
  readonly run: RunAgent;
  /** `runTools` makes text of every result. */
  readonly makesText?: true;
  /** Whether the client itself ends its loop when an answer is cut off. */
  readonly endsWhenCut?: true;
}

const agents: readonly Agent[] = [
  { name: "openai's runTools", run: runChat, makesText: true, endsWhenCut: true },
  { name: "openai's Responses", run: runResponses },
  { name: "Anthropic's toolRunner", run: runMessages, endsWhenCut: true },
  {
    name: "AI SDK, chat",
    run: runAiSdk((baseURL) =>
      createOpenAICompatible({ name: "fovea", baseURL, supportsMultiPartToolContent: true })(model),
    ),
  },
  { name: "AI SDK, Responses", run: runAiSdk((baseURL) => createOpenAI({ baseURL, apiKey: "none" })(model)) },
  { name: "LangChain, chat", run: runLangChain(false) },
  { name: "LangChain, Responses", run: runLangChain(true) },
];

const call =
  '<think>\nI need to see it.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "photograph", "arguments": {"place": "desk"}}\n</tool_call>';
const cutCall = call.slice(0, call.indexOf("desk") + 2);

const photo = [
  { type: "text", text: "A photo" },
  { type: "image", reference: pictureUrl },
];

/** Answers with the scripts in turn. */
function startAgentApp(...scripts: readonly Script[]) {
  let turn = 0;
  return createTestApp({
    script: () => scripts[turn++] ?? ["Too many turns."],
    config: { outputFormats: thinkingFormats },
  });
}

function messagesOf(app: ReturnType<typeof startAgentApp>, request: number): readonly ChatMessage[] {
  const prompt = app.engine.requests[request]?.prompt;
  return prompt?.kind === "chat" ? prompt.messages : [];
}

const withThinking = (text: string): Script[number] => ({ text, reasoningStart: "before" });

describe.for(agents)("$name", ({ run, makesText = false }) => {
  test("sends the call and its result, and gets the answer", async () => {
    const app = startAgentApp([withThinking(call)], [withThinking("A cup.")]);
    await using server = await serveApp(app);
    expect(await run(server.baseUrl)).toBe("A cup.");
    const [asked, called, answered, ...more] = messagesOf(app, 1);
    expect(more).toEqual([]);
    expect(asked).toMatchObject({ role: "user" });
    const calls = [{ id: expect.any(String), name: "photograph", arguments: { place: "desk" } }];
    expect(called).toMatchObject({ role: "assistant", toolCalls: calls });
    expect(JSON.stringify(called?.content)).toContain("Let me look.");
    expect(answered).toMatchObject({ role: "tool", toolCallId: called?.toolCalls?.[0]?.id });
    expect(answered?.content).toEqual(makesText ? "A photo" : photo);
  });
});

describe.for(agents.filter(({ endsWhenCut }) => endsWhenCut !== true))("$name", ({ run }) => {
  test("continues after a call that the limit of tokens cut off", async () => {
    const app = startAgentApp(
      [withThinking(cutCall), { text: "", finishReason: "length" }],
      [withThinking("I cannot see it.")],
    );
    await using server = await serveApp(app);
    expect(await run(server.baseUrl)).toBe("I cannot see it.");
    expect(messagesOf(app, 1)[1]).toMatchObject({ role: "assistant", toolCalls: [{ name: "photograph" }] });
  });
});
