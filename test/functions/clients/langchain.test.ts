/** LangChain's chat model for OpenAI, over chat completions and over Responses. */
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import type { BaseMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

import { countAborted } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { model, startClientService } from "./client-service.ts";
import { describeQuestion, readExamplePicture, sceneAnswer, writeExampleDocument } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";

let service: RunningService;

beforeAll(async () => {
  service = await startClientService();
});

afterAll(() => service[Symbol.asyncDispose]());

async function ask(question: string): Promise<HumanMessage> {
  const { dataUrl } = await readExamplePicture("scene");
  return new HumanMessage({
    content: [
      { type: "image_url", image_url: { url: dataUrl } },
      { type: "text", text: question },
    ],
  });
}

describe.for([
  [false, "/v1/chat/completions"],
  [true, "/v1/responses"],
] as const)("with useResponsesApi: %s", ([useResponsesApi, path]) => {
  const createModel = (fields: { readonly maxTokens?: number } = {}): ChatOpenAI =>
    new ChatOpenAI({
      ...fields,
      model,
      useResponsesApi,
      apiKey: "none",
      maxRetries: 0,
      configuration: { baseURL: `${service.baseUrl}/v1` },
    });

  test("answers about a picture", async () => {
    const answer = await createModel().invoke([await ask(describeQuestion)]);
    expect(answer.text).toBe(sceneAnswer);
    expect(answer.usage_metadata).toMatchObject({ output_tokens: expect.toSatisfy((count: number) => count > 10) });
    expect(service.log()).toContain(`"path":"${path}"`);
  });

  test("answers about a document", async () => {
    const data = (await writeExampleDocument("scene")).toString("base64");
    const content = [
      { type: "file", mimeType: "application/pdf", data, metadata: { filename: "scene.pdf" } } as const,
      { type: "text", text: describeQuestion } as const,
    ];
    expect((await createModel().invoke([new HumanMessage({ contentBlocks: content })])).text).toBe(sceneAnswer);
  });

  test("streams", async () => {
    const deltas: string[] = [];
    for await (const chunk of await createModel().stream([await ask(describeQuestion)])) deltas.push(chunk.text);
    expect(deltas.join("")).toBe(sceneAnswer);
    expect(deltas.filter((delta) => delta !== "").length).toBeGreaterThan(5);
  });

  test("gives structured output", async () => {
    const schema = z.object({ color: z.enum(["Red", "Yellow", "Blue"]) });
    const structured = createModel().withStructuredOutput(schema, { name: "answer", method: "jsonSchema" });
    const output = await structured.invoke([await ask("What color is the star?")]);
    expect(output).toEqual({ color: expect.stringMatching(/^(Red|Yellow|Blue)$/) });
  });

  test("runs a loop of required calls", async () => {
    const look = tool(() => "A large blue square", {
      name: "look",
      description: "Looks at a place of the picture.",
      schema: z.object({ place: z.enum(["center", "top left"]) }),
    });
    // Over Responses, this client passes on only the choice of one tool.
    const toolChoice = useResponsesApi ? "look" : "required";
    const withTools = createModel().bindTools([look], { tool_choice: toolChoice, parallel_tool_calls: false });
    const messages: BaseMessage[] = [await ask("What is in the center?")];
    for (let turn = 0; turn < 3; turn++) {
      const answer: AIMessage = await withTools.invoke(messages);
      expect(answer.tool_calls).toMatchObject([
        { name: "look", args: { place: expect.stringMatching(/^(center|top left)$/) } },
      ]);
      const [call] = answer.tool_calls ?? [];
      messages.push(answer, new ToolMessage({ content: "A large blue square", tool_call_id: call?.id ?? "" }));
    }
    expect((await createModel().invoke(messages)).text).not.toBe("");
  });

  test("aborts", async () => {
    const controller = new AbortController();
    const numAborted = (): number => countAborted(service, path);
    const before = numAborted();
    const stream = await createModel({ maxTokens: ALL_TOKENS }).stream([new HumanMessage("Describe the picture.")], {
      signal: controller.signal,
    });
    const read = async (): Promise<void> => {
      for await (const chunk of stream) if (chunk.text !== "") controller.abort();
    };
    await expect(read()).rejects.toThrow(/abort/i);
    await expect.poll(numAborted).toBe(before + 1);
  });
});
