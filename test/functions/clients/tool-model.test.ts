/**
 * The checkpoint that calls tools: its held-out turns, and loops of three calls that it decides itself, in each client's
 * own loop. Neither grammars nor `tool_choice` help it.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import type { BaseMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import type { LanguageModel } from "ai";
import OpenAI from "openai";
import type { RunnableToolFunctionWithParse } from "openai/lib/RunnableFunction";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

interface ObjectSchema {
  type: "object";
  properties: Record<string, { type: "string" | "integer" }>;
  required: string[];
}

interface Tool {
  readonly type: "function";
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: ObjectSchema };
}

interface Turn {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string;
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[];
}

interface Conversation {
  readonly half: "new-words" | "known-words";
  readonly tools: readonly Tool[];
  readonly messages: readonly Turn[];
}

const model = "fovea-tools";
const folder = fileURLToPath(new URL("../../../models/fovea-tools", import.meta.url));
const conversations = (await readFile(`${folder}/heldout/conversations.jsonl`, "utf8"))
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as Conversation);

let service: RunningService;

beforeAll(async () => {
  service = await startService({ MODEL: folder });
});

afterAll(() => service[Symbol.asyncDispose]());

type Calls = NonNullable<Turn["tool_calls"]>;
type Counts = Readonly<Record<"calls" | "others", number>>;

/** One conversation of so many is asked: all of them take a minute on a busy machine. */
const EVERY = 3;

/** Right turns of transformers, greedy, in float32: `models/train-tools/evaluate.py --every 3`. */
const rightTurns: Readonly<Record<Conversation["half"], Counts>> = {
  "new-words": { calls: 51, others: 44 },
  "known-words": { calls: 46, others: 42 },
};

/** Another processor's rounding may decide a tie differently. */
const MAX_TIES = 2;

function textOf(content: string | null | undefined, calls: Calls | undefined): string {
  return JSON.stringify([content ?? "", (calls ?? []).map(({ function: call }) => [call.name, call.arguments])]);
}

/** The turn with what OpenAI's API wants beside the text: ids, and null for a turn that only calls. */
function toMessage(turn: Turn): OpenAI.ChatCompletionMessageParam {
  const ids = turn.tool_calls?.map((call, index) => ({ id: `call_${index}`, type: "function", ...call }));
  const calls = ids === undefined ? {} : { content: null, tool_calls: ids };
  const result = turn.role === "tool" ? { tool_call_id: "call_0" } : {};
  return { ...turn, ...result, ...calls } as OpenAI.ChatCompletionMessageParam;
}

/** Whether the model gives this turn, after the right turns before it, character by character. */
async function isAnsweredRight({ messages, tools }: Conversation, index: number): Promise<boolean> {
  const client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const body = { model, messages: messages.slice(0, index).map(toMessage), tools: tools as never };
  const { message } = (await client.chat.completions.create(body)).choices[0]!;
  const right = messages[index]!;
  return textOf(message.content, message.tool_calls as Calls | undefined) === textOf(right.content, right.tool_calls);
}

test.for(["new-words", "known-words"] as const)("answers held-out turns of %s as transformers does", async (half) => {
  const counts = { calls: 0, others: 0 };
  await Promise.all(
    conversations
      .filter((conversation, line) => conversation.half === half && line % EVERY === 0)
      .flatMap((conversation) =>
        conversation.messages.map(async ({ role, tool_calls: calls }, index) => {
          if (role !== "assistant" || !(await isAnsweredRight(conversation, index))) return;
          counts[calls === undefined ? "others" : "calls"] += 1;
        }),
      ),
  );
  for (const kind of ["calls", "others"] as const) {
    expect(Math.abs(counts[kind] - rightTurns[half][kind]), `${kind}: ${counts[kind]}`).toBeLessThanOrEqual(MAX_TIES);
  }
});

describe("loops of three calls", () => {
  /** Runs a tool and keeps what was called. */
  type RunTool = (name: string, input: unknown) => string;
  /** Returns the last answer of the loop. */
  type RunLoop = (question: string, tools: readonly Tool[], run: RunTool) => Promise<string | null>;

  const runTools: RunLoop = (question, tools, run) =>
    new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 }).chat.completions
      .runTools({
        model,
        stream: true,
        messages: [{ role: "user", content: question }],
        tools: tools.map(
          ({ function: { name, description = "", parameters } }): RunnableToolFunctionWithParse<object> => ({
            type: "function",
            function: {
              name,
              description,
              parameters: { ...parameters },
              parse: (text) => JSON.parse(text) as object,
              function: (input) => run(name, input),
            },
          }),
        ),
      })
      .finalContent();

  const runResponses: RunLoop = async (question, tools, run) => {
    const client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: question }];
    const declared = tools.map(({ function: fields }) => ({
      type: "function" as const,
      ...fields,
      parameters: { ...fields.parameters },
      strict: null,
    }));
    for (;;) {
      const response = await client.responses.create({ model, input, tools: declared, store: false });
      const calls = response.output.filter((item) => item.type === "function_call");
      if (calls.length === 0) return response.output_text;
      input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]));
      for (const { name, arguments: text, call_id } of calls) {
        input.push({ type: "function_call_output", call_id, output: run(name, JSON.parse(text)) });
      }
    }
  };

  const runAnthropic: RunLoop = async (question, tools, run) => {
    const client = new Anthropic({ baseURL: service.baseUrl, apiKey: "none", maxRetries: 0 });
    const { content } = await client.beta.messages
      .toolRunner({
        model,
        max_tokens: 200,
        messages: [{ role: "user", content: question }],
        tools: tools.map(({ function: { name, description = "", parameters } }) =>
          betaTool({ name, description, inputSchema: parameters, run: (input) => run(name, input) }),
        ),
      })
      .runUntilDone();
    return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("");
  };

  const runAiSdk =
    (create: (baseURL: string) => LanguageModel): RunLoop =>
    async (question, tools, run) => {
      const { text } = await generateText({
        model: create(`${service.baseUrl}/v1`),
        prompt: question,
        maxRetries: 0,
        stopWhen: stepCountIs(6),
        providerOptions: { openai: { store: false } },
        tools: Object.fromEntries(
          tools.map(({ function: { name, description = "", parameters } }) => [
            name,
            tool({ description, inputSchema: jsonSchema(parameters), execute: (input) => run(name, input) }),
          ]),
        ),
      });
      return text;
    };

  const runLangChain: RunLoop = async (question, tools, run) => {
    const configuration = { baseURL: `${service.baseUrl}/v1` };
    const chat = new ChatOpenAI({ model, apiKey: "none", maxRetries: 0, configuration }).bindTools([...tools]);
    const messages: BaseMessage[] = [new HumanMessage(question)];
    for (;;) {
      const answer = await chat.invoke(messages);
      if (answer.tool_calls === undefined || answer.tool_calls.length === 0) return answer.text;
      messages.push(answer);
      for (const { name, args, id = "" } of answer.tool_calls) {
        messages.push(new ToolMessage({ content: run(name, args), tool_call_id: id }));
      }
    }
  };

  const loops: Readonly<Record<string, RunLoop>> = {
    "openai's runTools": runTools,
    "openai's Responses": runResponses,
    "Anthropic's toolRunner": runAnthropic,
    "AI SDK, chat": runAiSdk((baseURL) => createOpenAICompatible({ name: "fovea", baseURL })(model)),
    "AI SDK, Responses": runAiSdk((baseURL) => createOpenAI({ baseURL, apiKey: "none" })(model)),
    LangChain: runLangChain,
  };
  /** Three different tools; one tool three times; a call with the result of the one before. */
  const lines = [98, 104, 93];
  const cases = Object.keys(loops).flatMap((client) => lines.map((line) => ({ client, line })));

  test.concurrent.for(cases)("$client decides and answers line $line", async ({ client, line }) => {
    const { tools, messages } = conversations[line]!;
    const results = messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    const expected = messages.flatMap(({ tool_calls: calls = [] }) =>
      calls.map(({ function: call }) => [call.name, JSON.parse(call.arguments) as unknown]),
    );
    expect(expected).toHaveLength(3);
    const called: unknown[] = [];
    const answer = await loops[client]!(messages[0]!.content, tools, (name, input) => {
      called.push([name, input]);
      return results[called.length - 1] ?? "Too many calls.";
    });
    expect(called).toEqual(expected);
    expect(answer).toBe(messages.at(-1)!.content);
  });
});
