/** The Vercel AI SDK's providers for OpenAI (Responses by default) and for OpenAI-compatible servers. */
import { readFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import type { LanguageModel } from "ai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

import { countAborted } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { model, startClientService } from "./client-service.ts";
import { describeQuestion, readExamplePicture, sceneAnswer, writeExampleDocument } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";

/** Of every picture of this model. */
const TOKENS_PER_FRAME = 64;

let service: RunningService;

beforeAll(async () => {
  service = await startClientService();
});

afterAll(() => service[Symbol.asyncDispose]());

async function ask(question: string) {
  const { bytes } = await readExamplePicture("scene");
  const content = [
    { type: "file" as const, data: bytes, mediaType: "image/png" },
    { type: "text" as const, text: question },
  ];
  return { messages: [{ role: "user" as const, content }], maxRetries: 0 };
}

/** By package: the model, and the path that it calls. */
const providers: readonly (readonly [name: string, path: string, create: () => LanguageModel])[] = [
  ["@ai-sdk/openai", "/v1/responses", () => createOpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none" })(model)],
  [
    "@ai-sdk/openai-compatible",
    "/v1/chat/completions",
    () =>
      createOpenAICompatible({
        name: "fovea",
        baseURL: `${service.baseUrl}/v1`,
        includeUsage: true,
        supportsStructuredOutputs: true,
      })(model),
  ],
];

/** The service stores nothing, so the client must send items instead of references. */
const providerOptions = { openai: { store: false } };

describe.for(providers)("%s", ([, path, create]) => {
  test("answers about a picture", async () => {
    const { text, usage, finishReason } = await generateText({ model: create(), ...(await ask(describeQuestion)) });
    expect(text).toBe(sceneAnswer);
    expect(finishReason).toBe("stop");
    expect(usage.inputTokens).toBeGreaterThan(10);
    expect(usage.outputTokens).toBeGreaterThan(10);
    expect(service.log()).toContain(`"path":"${path}"`);
  });

  test("answers about a document", async () => {
    const data = await writeExampleDocument("scene");
    const content = [
      { type: "file" as const, data, mediaType: "application/pdf", filename: "scene.pdf" },
      { type: "text" as const, text: describeQuestion },
    ];
    const { text } = await generateText({ model: create(), messages: [{ role: "user", content }], maxRetries: 0 });
    expect(text).toBe(sceneAnswer);
  });

  test("streams", async () => {
    const result = streamText({ model: create(), ...(await ask(describeQuestion)) });
    const deltas: string[] = [];
    for await (const delta of result.textStream) deltas.push(delta);
    expect(deltas.join("")).toBe(sceneAnswer);
    expect(deltas.length).toBeGreaterThan(5);
    expect((await result.usage).outputTokens).toBeGreaterThan(10);
    expect(await result.finishReason).toBe("stop");
  });

  test("gives structured output", async () => {
    const output = Output.object({ schema: z.object({ color: z.enum(["Red", "Yellow", "Blue"]) }) });
    const result = await generateText({ model: create(), output, ...(await ask("What color is the star?")) });
    expect(result.output).toEqual({ color: expect.stringMatching(/^(Red|Yellow|Blue)$/) });
  });

  test("runs a loop of required calls", async () => {
    const places: string[] = [];
    const look = tool({
      description: "Looks at a place of the picture.",
      inputSchema: z.object({ place: z.enum(["center", "top left"]) }),
      execute({ place }) {
        places.push(place);
        return "A large blue square";
      },
    });
    const { steps } = await generateText({
      model: create(),
      tools: { look },
      toolChoice: "required",
      stopWhen: stepCountIs(3),
      providerOptions: { ...providerOptions, fovea: { parallelToolCalls: false } },
      ...(await ask("What is in the center?")),
    });
    expect(steps).toHaveLength(3);
    expect(steps.map(({ finishReason }) => finishReason)).toEqual(["tool-calls", "tool-calls", "tool-calls"]);
    expect(places.length).toBeGreaterThanOrEqual(3);
  });

  test("aborts", async () => {
    const controller = new AbortController();
    const numAborted = (): number => countAborted(service, path);
    const before = numAborted();
    const result = streamText({
      model: create(),
      prompt: "Describe the picture.",
      maxOutputTokens: ALL_TOKENS,
      abortSignal: controller.signal,
      maxRetries: 0,
    });
    for await (const part of result.fullStream) if (part.type === "text-delta") controller.abort();
    await expect.poll(numAborted).toBe(before + 1);
  });
});

test("@ai-sdk/openai-compatible sends videos", async () => {
  const name = "fovea";
  const compatible = createOpenAICompatible({ name, baseURL: `${service.baseUrl}/v1`, includeUsage: true })(model);
  const data = await readFile(new URL("../../fixtures/videos/vp9-alt-ref.webm", import.meta.url));
  const tokensOf = async (numFrames: number): Promise<number> => {
    const { usage } = await generateText({
      model: compatible,
      messages: [
        {
          role: "user",
          content: [
            { type: "file", data, mediaType: "video/webm" },
            { type: "text", text: "Describe the picture." },
          ],
        },
      ],
      // Passed on as a field of the body.
      providerOptions: { [name]: { media_io_kwargs: { video: { num_frames: numFrames } } } },
      maxOutputTokens: 1,
      maxRetries: 0,
    });
    return usage.inputTokens!;
  };
  expect((await tokensOf(4)) - (await tokensOf(3))).toBeGreaterThanOrEqual(TOKENS_PER_FRAME);
});
