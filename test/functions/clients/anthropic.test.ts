/** Anthropic's client against /v1/messages, with the shipped checkpoint. */
import Anthropic, {
  APIUserAbortError,
  AuthenticationError,
  BadRequestError,
  NotFoundError,
  toFile,
} from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";

import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { model, startClientService } from "./client-service.ts";
import { describeQuestion, readExamplePicture, sceneAnswer, writeExampleDocument } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";

const check = wireSchemas("anthropic-messages.json");
const isoTime = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
let service: RunningService;
let client: Anthropic;

beforeAll(async () => {
  service = await startClientService({ API_KEY: "a-key" });
  client = new Anthropic({ baseURL: service.baseUrl, apiKey: "a-key", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

async function ask(question: string): Promise<Anthropic.MessageParam[]> {
  const { base64 } = await readExamplePicture("scene");
  return [
    {
      role: "user",
      content: [
        { type: "image", source: { type: "base64", media_type: "image/png", data: base64 } },
        { type: "text", text: question },
      ],
    },
  ];
}

test("answers about a picture, and counts its tokens before", async () => {
  const body = { model, messages: await ask(describeQuestion), system: "Answer briefly." };
  const counted = await client.messages.countTokens(body);
  const message = await client.messages.create({ ...body, max_tokens: 100 });
  check("MessageTokensCount", counted);
  expect(message.content).toMatchObject([{ type: "text", text: sceneAnswer }]);
  expect(message.stop_reason).toBe("end_turn");
  const { input_tokens: computed, cache_read_input_tokens: reused } = message.usage;
  expect(counted.input_tokens).toBe(computed + (reused ?? 0));
});

test("answers about a document, also one that a tool returns", async () => {
  const data = (await writeExampleDocument("scene")).toString("base64");
  const document: Anthropic.DocumentBlockParam = {
    type: "document",
    source: { type: "base64", media_type: "application/pdf", data },
  };
  const asked: Anthropic.MessageParam[] = [
    { role: "user", content: [document, { type: "text", text: describeQuestion }] },
  ];
  const counted = await client.messages.countTokens({ model, messages: asked });
  const message = await client.messages.create({ model, max_tokens: 100, messages: asked });
  expect(message.content).toMatchObject([{ type: "text", text: sceneAnswer }]);
  expect(counted.input_tokens).toBeGreaterThan(64);
  const returned: Anthropic.MessageParam[] = [
    { role: "user", content: "Read the page." },
    { role: "assistant", content: [{ type: "tool_use", id: "a", name: "read", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: [document] }] },
  ];
  const ofResult = await client.messages.countTokens({ model, messages: returned });
  expect(ofResult.input_tokens).toBeGreaterThan(64);
});

test("uploads, lists and deletes files, and answers about them", async () => {
  const { files } = client.beta;
  const { bytes } = await readExamplePicture("scene");
  const picture = await files.upload({ file: await toFile(bytes, "scene.png") });
  expect(picture).toEqual({
    type: "file",
    id: expect.stringMatching(/^file-/),
    filename: "scene.png",
    mime_type: "image/png",
    size_bytes: bytes.length,
    created_at: expect.stringMatching(isoTime),
    expires_at: expect.stringMatching(isoTime),
    downloadable: true,
  });
  const pdf = await toFile(await writeExampleDocument("scene"), "scene.pdf");
  const document = await files.upload({ file: pdf, expires_in_seconds: 3600 });
  expect(Date.parse(document.expires_at!) - Date.parse(document.created_at)).toBe(3_600_000);
  for (const block of [
    { type: "image", source: { type: "file", file_id: picture.id } },
    { type: "document", source: { type: "file", file_id: document.id } },
  ] as const) {
    const content = [block, { type: "text" as const, text: describeQuestion }];
    const messages = [{ role: "user" as const, content }];
    const message = await client.beta.messages.create({ model, max_tokens: 100, messages });
    expect(message.content).toMatchObject([{ type: "text", text: sceneAnswer }]);
  }

  const listed: string[] = [];
  for await (const { id } of files.list({ limit: 1 })) listed.push(id);
  expect(listed.slice(0, 2)).toEqual([document.id, picture.id]);
  const chosen = await files.list({ ids: [picture.id, "file-unknown"] });
  expect(chosen.data).toEqual([await files.retrieveMetadata(picture.id)]);
  expect(Buffer.from(await (await files.download(picture.id)).arrayBuffer())).toEqual(bytes);
  expect(await files.delete(picture.id)).toEqual({ id: picture.id, type: "file_deleted" });
  const gone: unknown = await files.retrieveMetadata(picture.id).catch((error: unknown) => error);
  expect(gone).toBeInstanceOf(NotFoundError);
  expect((gone as NotFoundError).error).toMatchObject({ type: "error", error: { type: "not_found_error" } });
  await expect(files.upload({ file: pdf, expires_in_seconds: 60 })).rejects.toBeInstanceOf(BadRequestError);
});

test("lists the models", async () => {
  const listed: Anthropic.ModelInfo[] = [];
  for await (const info of client.models.list({ limit: 1 })) listed.push(info);
  expect(listed).toEqual([
    {
      type: "model",
      id: model,
      display_name: model,
      created_at: expect.stringMatching(isoTime),
      max_input_tokens: expect.any(Number),
      max_tokens: expect.any(Number),
      capabilities: null,
      line: null,
      lifecycle: "active",
      deprecated_at: null,
      retires_at: null,
    },
  ]);
  expect(await client.models.retrieve(model)).toEqual(listed[0]);
  const unknown: unknown = await client.models.retrieve("another").catch((error: unknown) => error);
  expect(unknown).toBeInstanceOf(NotFoundError);
  expect((unknown as NotFoundError).error).toMatchObject({ type: "error", error: { type: "not_found_error" } });
  const wrong = client.withOptions({ apiKey: "another" });
  await expect(wrong.models.list()).rejects.toBeInstanceOf(AuthenticationError);
});

test("puts a prompt into the cache without an answer", async () => {
  const body = { model, messages: await ask("Which shapes are there?") };
  const warmed = await client.messages.create({ ...body, max_tokens: 0 });
  expect(warmed).toMatchObject({ content: [], stop_reason: "max_tokens", usage: { output_tokens: 0 } });
  const { usage } = await client.messages.create({ ...body, max_tokens: 5 });
  expect(usage.cache_read_input_tokens).toBeGreaterThan(60);
});

test("continues the last turn of the assistant", async () => {
  const [begun, rest] = [sceneAnswer.slice(0, 29), sceneAnswer.slice(29)];
  const messages = [...(await ask(describeQuestion)), { role: "assistant" as const, content: begun }];
  const counted = await client.messages.countTokens({ model, messages });
  const message = await client.messages.create({ model, messages, max_tokens: 100 });
  expect(message.content).toMatchObject([{ type: "text", text: rest }]);
  expect(counted.input_tokens).toBe(message.usage.input_tokens + (message.usage.cache_read_input_tokens ?? 0));
  const stream = client.messages.stream({ model, messages, max_tokens: 100 });
  expect(await stream.finalText()).toBe(rest);
});

test("accumulates a stream to the same answer", async () => {
  const stream = client.messages.stream({ model, messages: await ask(describeQuestion), max_tokens: 100 });
  const deltas: string[] = [];
  stream.on("text", (delta) => deltas.push(delta));
  const message = await stream.finalMessage();
  expect(message.content).toMatchObject([{ type: "text", text: sceneAnswer }]);
  expect(deltas.join("")).toBe(sceneAnswer);
  expect(deltas.length).toBeGreaterThan(5);
  expect(message.usage.output_tokens).toBeGreaterThan(5);
  expect(message.stop_reason).toBe("end_turn");
});

test("every event of a stream has the published shape", async () => {
  const stream = await client.messages.create({
    model,
    messages: await ask(describeQuestion),
    max_tokens: 100,
    stream: true,
  });
  let numEvents = 0;
  for await (const event of stream) {
    check("RawMessageStreamEvent", event);
    numEvents += 1;
  }
  expect(numEvents).toBeGreaterThan(10);
});

test("continues a conversation with the blocks of the answer", async () => {
  const messages = await ask("What color is the star?");
  const first = await client.messages.create({ model, messages, max_tokens: 20 });
  expect(first.content).toMatchObject([{ text: "Yellow" }]);
  const second = await client.messages.create({
    model,
    max_tokens: 20,
    messages: [
      ...messages,
      { role: "assistant", content: first.content as Anthropic.ContentBlockParam[] },
      { role: "user", content: "What color is the square?" },
    ],
  });
  expect(second.content).toMatchObject([{ text: "Blue" }]);
});

test("stops at a sequence and at max_tokens, and says so", async () => {
  const messages = await ask(describeQuestion);
  const stopped = await client.messages.create({ model, messages, max_tokens: 100, stop_sequences: ["circle"] });
  expect(stopped).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: "circle" });
  expect(stopped.content).toMatchObject([{ text: "A large red " }]);
  const cut = await client.messages.create({ model, messages, max_tokens: 2 });
  expect(cut).toMatchObject({ stop_reason: "max_tokens", usage: { output_tokens: 2 } });
});

test("gives structured output by a schema", async () => {
  const message = await client.messages.create({
    model,
    messages: await ask("What color is the star?"),
    max_tokens: 100,
    output_config: {
      format: {
        type: "json_schema",
        schema: {
          type: "object",
          properties: { color: { type: "string", enum: ["Red", "Yellow"] } },
          required: ["color"],
          additionalProperties: false,
        },
      },
    },
  });
  const [block] = message.content;
  expect(JSON.parse(block?.type === "text" ? block.text : "")).toEqual({
    color: expect.stringMatching(/^(Red|Yellow)$/),
  });
});

test("a loop of required calls and results with pictures ends with an answer", async () => {
  const { base64 } = await readExamplePicture("label");
  const tools: Anthropic.Tool[] = [
    {
      name: "look",
      description: "Looks at a place of the picture.",
      input_schema: {
        type: "object",
        properties: { place: { type: "string", enum: ["center", "top left"] } },
        required: ["place"],
        additionalProperties: false,
      },
    },
  ];
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: "What is in the center?" }];
  for (let turn = 0; turn < 3; turn++) {
    const message = await client.messages
      .stream({
        model,
        messages,
        tools,
        max_tokens: 200,
        tool_choice: { type: "any", disable_parallel_tool_use: true },
      })
      .finalMessage();
    expect(message.stop_reason).toBe("tool_use");
    const [block] = message.content;
    expect(block).toMatchObject({
      type: "tool_use",
      name: "look",
      input: { place: expect.stringMatching(/^(center|top left)$/) },
    });
    messages.push(
      { role: "assistant", content: message.content as Anthropic.ContentBlockParam[] },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: block?.type === "tool_use" ? block.id : "",
            content: [
              { type: "text", text: "A label" },
              { type: "image", source: { type: "base64", media_type: "image/png", data: base64 } },
            ],
          },
        ],
      },
    );
  }
  const last = await client.messages.create({ model, messages, tools, tool_choice: { type: "none" }, max_tokens: 20 });
  expect(last.content).toMatchObject([{ type: "text" }]);
});

test("throws its own errors, with the id of the request", async () => {
  const thrownBy = (answer: Promise<unknown>): Promise<unknown> => answer.catch((error: unknown) => error);
  const messages = [{ role: "user" as const, content: "a" }];
  const refused = await thrownBy(client.messages.create({ model, messages, max_tokens: -1 }));
  expect(refused).toBeInstanceOf(BadRequestError);
  expect(refused).toMatchObject({
    type: "invalid_request_error",
    apiMessage: expect.stringMatching(/max_tokens/),
    requestID: expect.stringMatching(/./),
  });
  const stranger = new Anthropic({ baseURL: service.baseUrl, apiKey: "another", maxRetries: 0 });
  const locked = await thrownBy(stranger.messages.create({ model, messages, max_tokens: 5 }));
  expect(locked).toBeInstanceOf(AuthenticationError);
});

test("an aborted stream frees its place", async () => {
  const messages = [{ role: "user" as const, content: "a" }];
  const stream = client.messages.stream({ model, messages, max_tokens: ALL_TOKENS });
  stream.on("text", () => stream.abort());
  await expect(stream.finalMessage()).rejects.toBeInstanceOf(APIUserAbortError);
  await expect.poll(() => service.log()).toMatch(/"path":"\/v1\/messages","status":499/);
  await expect
    .poll(async () => (await fetch(`${service.baseUrl}/metrics`)).text())
    .toMatch(/^vllm:num_requests_running\{[^}]*\} 0$/m);
});
