/** The openai client against /v1/responses, with the shipped checkpoint. */
import OpenAI, { BadRequestError, toFile } from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import type { ResponseInput, ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";

import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { model, startClientService } from "./client-service.ts";
import { describeQuestion, readExamplePicture, sceneAnswer, writeExampleDocument } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";

const check = wireSchemas("openai-responses.json");
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  service = await startClientService();
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

async function ask(question: string): Promise<ResponseInput> {
  const { dataUrl } = await readExamplePicture("scene");
  return [
    {
      role: "user",
      content: [
        { type: "input_image", image_url: dataUrl, detail: "auto" },
        { type: "input_text", text: question },
      ],
    },
  ];
}

test("answers about a picture, with the usage that chat completions give", async () => {
  const input = await ask(describeQuestion);
  const response = await client.responses.create({ model, input });
  expect(response.output_text).toBe(sceneAnswer);
  expect(response.status).toBe("completed");
  const { dataUrl } = await readExamplePicture("scene");
  const chat = await client.chat.completions.create({
    model,
    messages: [
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: dataUrl } },
          { type: "text", text: describeQuestion },
        ],
      },
    ],
  });
  expect(response.usage).toMatchObject({
    input_tokens: chat.usage!.prompt_tokens,
    output_tokens: chat.usage!.completion_tokens,
    total_tokens: chat.usage!.total_tokens,
  });
});

test("answers about a PDF file, as chat completions do", async () => {
  const data = (await writeExampleDocument("scene")).toString("base64");
  const file = { filename: "scene.pdf", file_data: `data:application/pdf;base64,${data}` };
  const response = await client.responses.create({
    model,
    input: [
      {
        role: "user",
        content: [
          { type: "input_file", ...file },
          { type: "input_text", text: describeQuestion },
        ],
      },
    ],
  });
  expect(response.output_text).toBe(sceneAnswer);
  const chat = await client.chat.completions.create({
    model,
    messages: [
      {
        role: "user",
        content: [
          { type: "file", file },
          { type: "text", text: describeQuestion },
        ],
      },
    ],
  });
  expect(chat.choices[0]?.message.content).toBe(sceneAnswer);
  expect(response.usage?.input_tokens).toBe(chat.usage?.prompt_tokens);
});

test("answers about uploaded files", async () => {
  const { bytes } = await readExamplePicture("scene");
  const picture = await client.files.create({ file: await toFile(bytes, "scene.png"), purpose: "vision" });
  const pdf = await toFile(await writeExampleDocument("scene"), "scene.pdf");
  const document = await client.files.create({ file: pdf, purpose: "user_data" });
  for (const part of [
    { type: "input_image", file_id: picture.id, detail: "auto" },
    { type: "input_file", file_id: document.id },
  ] as const) {
    const content = [part, { type: "input_text" as const, text: describeQuestion }];
    const response = await client.responses.create({ model, input: [{ role: "user", content }] });
    expect(response.output_text).toBe(sceneAnswer);
  }
  await client.files.delete(document.id);
  const content = [{ type: "input_file" as const, file_id: document.id }];
  await expect(client.responses.create({ model, input: [{ role: "user", content }] })).rejects.toMatchObject({
    status: 400,
    param: "input[0].content[0].file_id",
  });
});

test("accumulates a stream to the same answer", async () => {
  const stream = client.responses.stream({ model, input: await ask(describeQuestion) });
  const deltas: string[] = [];
  const events: ResponseStreamEvent[] = [];
  stream.on("response.output_text.delta", ({ delta }) => deltas.push(delta));
  stream.on("event", (event) => events.push(event));
  const final = await stream.finalResponse();
  expect(final.output_text).toBe(sceneAnswer);
  expect(deltas.join("")).toBe(sceneAnswer);
  expect(deltas.length).toBeGreaterThan(5);
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
});

test("every event of a stream has the published shape", async () => {
  const stream = await client.responses.create({
    model,
    input: await ask(describeQuestion),
    stream: true,
    include: ["message.output_text.logprobs"],
    top_logprobs: 2,
  });
  let numEvents = 0;
  for await (const event of stream) {
    check("ResponseStreamEvent", event);
    numEvents += 1;
  }
  expect(numEvents).toBeGreaterThan(10);
});

test("counts the tokens of a prompt with its picture without generating", async () => {
  const input = await ask(describeQuestion);
  const counted = await client.responses.inputTokens.count({ model, instructions: "Look.", input });
  const { usage } = await client.responses.create({ model, instructions: "Look.", input, max_output_tokens: 1 });
  expect(counted).toEqual({ object: "response.input_tokens", input_tokens: usage!.input_tokens });
});

test("continues a conversation with the items of the answer", async () => {
  const input = await ask("What color is the star?");
  const first = await client.responses.create({ model, input });
  expect(first.output_text).toBe("Yellow");
  const second = await client.responses.create({
    model,
    instructions: "Answer briefly.",
    input: [...input, ...(first.output as ResponseInput), { role: "user", content: "What color is the square?" }],
  });
  expect(second.output_text).toBe("Blue");
});

test("gives structured output by a schema, also parsed and streamed", async () => {
  const format = zodTextFormat(z.object({ color: z.enum(["Red", "Yellow", "Blue"]) }), "answer");
  const body = { model, input: await ask("What color is the star?"), text: { format } };
  const response = await client.responses.parse(body);
  expect(response.output_parsed).toEqual({ color: expect.stringMatching(/^(Red|Yellow|Blue)$/) });
  const streamed = await client.responses.stream(body).finalResponse();
  expect(streamed.output_text).toBe(response.output_text);
});

test("says that an answer is incomplete", async () => {
  const response = await client.responses.create({ model, input: await ask(describeQuestion), max_output_tokens: 3 });
  expect(response.status).toBe("incomplete");
  expect(response.incomplete_details).toEqual({ reason: "max_output_tokens" });
});

test("a loop of required calls and their results ends with an answer", async () => {
  const tools = [
    {
      type: "function" as const,
      name: "look",
      description: "Looks at a place of the picture.",
      strict: true,
      parameters: {
        type: "object",
        properties: { place: { type: "string", enum: ["center", "top left"] } },
        required: ["place"],
        additionalProperties: false,
      },
    },
  ];
  const input: ResponseInput = await ask("What is in the center?");
  for (let turn = 0; turn < 3; turn++) {
    const stream = client.responses.stream({
      model,
      input,
      tools,
      tool_choice: "required",
      parallel_tool_calls: false,
    });
    const { output } = await stream.finalResponse();
    const [call] = output;
    expect(call).toMatchObject({ type: "function_call", name: "look", status: "completed" });
    if (call?.type !== "function_call") continue;
    expect(JSON.parse(call.arguments)).toEqual({ place: expect.stringMatching(/^(center|top left)$/) });
    input.push(
      { type: "function_call", call_id: call.call_id, name: call.name, arguments: call.arguments },
      { type: "function_call_output", call_id: call.call_id, output: "A large blue square" },
    );
  }
  const last = await client.responses.create({ model, input, tools, tool_choice: "none" });
  expect(last.output).toMatchObject([{ type: "message", status: "completed" }]);
});

test("throws its own error for a request that is refused", async () => {
  const refused = client.responses.create({ model, input: "a", previous_response_id: "resp_1" });
  const error: unknown = await refused.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(BadRequestError);
  expect(error).toMatchObject({
    param: "previous_response_id",
    message: expect.stringMatching(/stores no answers/),
  });
});

test("an aborted stream frees its place", async () => {
  const stream = await client.responses.create({
    model,
    input: "Describe the picture.",
    stream: true,
    max_output_tokens: ALL_TOKENS,
  });
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  await expect
    .poll(async () => (await fetch(`${service.baseUrl}/metrics`)).text())
    .toMatch(/^vllm:num_requests_running\{[^}]*\} 0$/m);
  await expect.poll(() => service.log()).toMatch(/"path":"\/v1\/responses","status":499/);
});
