import { readFile } from "node:fs/promises";
import { APICallError, InvalidArgumentError, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { generateObject, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import type { ModelMessage, ToolSet } from "ai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

import { createEngine } from "../../../engine/index.ts";
import type { Engine, ImageSource } from "../../../engine/index.ts";
import { fovea } from "../../../functions/ai-sdk/language-model.ts";
import { Lasting } from "../../support/engine/lasting-processor.ts";
import { createScriptedEngine } from "../../support/engine/scripted-engine.ts";
import { endless } from "../../support/requests/lasting-answers.ts";
import { pdfOfPictures } from "../../support/requests/pdf-writer.ts";
import { Failing } from "./failing-processor.ts";

const picture = await readFile(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));
const description =
  "A large red circle in the top left, a small yellow star in the top right, a large blue square in the center and " +
  "a large green triangle in the bottom right.";

let engine: Engine;
let model: LanguageModelV4;

beforeAll(async () => {
  // The AI SDK logs a warning about deprecated parts of a model to the console.
  globalThis.AI_SDK_LOG_WARNINGS = false;
  engine = createEngine({}, { logitsProcessors: [Failing, Lasting] });
  model = fovea(engine);
  await engine.ready;
});

afterAll(() => engine.close());

function ask(text: string, data: Uint8Array | string | URL = picture): ModelMessage[] {
  return [
    {
      role: "user",
      content: [
        { type: "file", data, mediaType: "image/png" },
        { type: "text", text },
      ],
    },
  ];
}

/** The options with which the AI SDK calls the model. */
function callOptions(options: Partial<LanguageModelV4CallOptions> = {}): LanguageModelV4CallOptions {
  return { prompt: [{ role: "user", content: [{ type: "text", text: "How many shapes are there?" }] }], ...options };
}

async function readAll(stream: ReadableStream<LanguageModelV4StreamPart>): Promise<LanguageModelV4StreamPart[]> {
  const parts: LanguageModelV4StreamPart[] = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

describe("generateText", () => {
  test("answers about the page of a document that is chosen", async () => {
    const folder = new URL("../../../models/fovea-shapes/examples/", import.meta.url);
    const data = await pdfOfPictures(new URL("label.png", folder), new URL("scene.png", folder));
    const content = [
      { type: "file" as const, data, mediaType: "application/pdf" },
      { type: "text" as const, text: "Describe the picture." },
    ];
    const providerOptions = { fovea: { documentPages: { firstPage: 2, content: "both" } } };
    const { text } = await generateText({ model, messages: [{ role: "user", content }], providerOptions });
    expect(text).toBe(description);
  });

  test("answers about a picture, with usage and how the answer ended", async () => {
    const result = await generateText({ model, messages: ask("Describe the picture.") });
    expect(result.text).toBe(description);
    expect(result.finishReason).toBe("stop");
    expect(result.warnings).toEqual([]);
    expect(result.usage).toMatchObject({ inputTokens: 71, outputTokens: 36, totalTokens: 107 });
    expect(result.providerMetadata).toEqual({ fovea: { stopReason: null, numImageTokens: 64, numVideoTokens: 0 } });
    expect(result.response).toMatchObject({ id: expect.any(String), modelId: "fovea" });
  });

  test("accepts pictures as base64 and data URLs, and reports cached prompt tokens", async () => {
    const base64 = picture.toString("base64");
    for (const data of [base64, `data:image/png;base64,${base64}`, new URL(`data:image/png;base64,${base64}`)]) {
      const { text, usage } = await generateText({ model, messages: ask("Describe the picture.", data) });
      expect(text).toBe(description);
      expect(usage.inputTokenDetails.cacheReadTokens).toBeGreaterThan(64);
      expect(usage.inputTokenDetails.noCacheTokens).toBeLessThan(7);
    }
  });

  test("shows frames of a video", async () => {
    const video = await readFile(new URL("../../fixtures/videos/vp9-alt-ref.webm", import.meta.url));
    const { providerMetadata } = await generateText({
      model,
      messages: [{ role: "user", content: [{ type: "file", data: video, mediaType: "video/webm" }] }],
      providerOptions: { fovea: { videoSampling: { numFrames: 5 } } },
      maxOutputTokens: 1,
    });
    expect(providerMetadata).toMatchObject({ fovea: { numImageTokens: 0, numVideoTokens: 5 * 64 } });
  });

  test("continues a conversation with a system message and earlier answers", async () => {
    const result = await generateText({
      model,
      system: "You answer questions about pictures.",
      messages: [
        ...ask("Describe the picture."),
        {
          role: "assistant",
          content: [
            { type: "reasoning", text: "Four." },
            { type: "text", text: description },
          ],
        },
        { role: "user", content: "How many shapes are there?" },
      ],
    });
    expect(result.text).toMatch(/\w/);
    expect(result.usage.inputTokens).toBeGreaterThan(107);
  });

  test("stops at the token limit and at stop sequences", async () => {
    const messages = ask("Describe the picture.");
    const short = await generateText({ model, messages, maxOutputTokens: 3 });
    expect(short).toMatchObject({ text: "A large red", finishReason: "length", usage: { outputTokens: 3 } });
    const stopped = await generateText({ model, messages, stopSequences: [" circle"] });
    expect(stopped).toMatchObject({ text: "A large red", finishReason: "stop" });
    expect(stopped.providerMetadata?.fovea?.stopReason).toBe(" circle");
  });

  test("draws the same text from the same seed", async () => {
    const options = { model, messages: ask("Describe the picture."), temperature: 1.5, topP: 0.95, topK: 40, seed: 7 };
    const [first, second] = [await generateText(options), await generateText(options)];
    expect(second.text).toBe(first.text);
  });

  test("rejects with the engine's error for a setting out of range", async () => {
    const call = generateText({ model, messages: ask("Describe the picture."), temperature: 3 });
    await expect(call).rejects.toMatchObject({ name: "EngineError", code: "invalid_argument" });
  });
});

describe("structured output", () => {
  // Penalties keep the small model, which does not know JSON, from writing white space forever.
  const penalties = { frequencyPenalty: 2, providerOptions: { fovea: { repetitionPenalty: 2 } } };
  const schema = z.object({
    color: z.enum(["red", "blue", "green", "yellow"]),
    isFilled: z.boolean(),
    position: z.object({ column: z.number().int().min(0).max(9), row: z.int() }),
  });

  test("limits the text to the schema of an output", async () => {
    const { output } = await generateText({
      model,
      messages: ask("What is in the center?"),
      output: Output.object({ schema }),
      ...penalties,
    });
    expect(schema.parse(output)).toEqual(output);
  });

  test("limits the text of generateObject to its schema", async () => {
    const { object } = await generateObject({ model, messages: ask("What is in the center?"), schema, ...penalties });
    expect(schema.parse(object)).toEqual(object);
  });

  test("streams partial objects as they grow", async () => {
    const result = streamText({
      model,
      messages: ask("What is in the center?"),
      output: Output.object({ schema }),
      ...penalties,
    });
    const partial: unknown[] = [];
    for await (const value of result.partialOutputStream) partial.push(value);
    expect(partial.length).toBeGreaterThan(2);
    expect(partial.at(-1)).toEqual(schema.parse(partial.at(-1)));
  });

  test("accepts a regular expression, choices or a grammar as provider options", async () => {
    const answer = async (fovea: Record<string, string | string[]>): Promise<string> =>
      (await generateText({ model, messages: ask("Is there a circle?"), providerOptions: { fovea } })).text;
    expect(await answer({ regex: "[0-9]{3}-[0-9]{2}" })).toMatch(/^[0-9]{3}-[0-9]{2}$/);
    expect(["certainly", "never"]).toContain(await answer({ choice: ["certainly", "never"] }));
    expect(await answer({ grammar: 'root ::= "<" [a-c] ">"' })).toMatch(/^<[a-c]>$/);
    await expect(answer({ regex: "a", choice: ["b"] })).rejects.toThrow("got regex and choice");
  });
});

describe("streamText", () => {
  test("streams the text that generateText returns", async () => {
    const result = streamText({ model, messages: ask("Describe the picture.") });
    const deltas: string[] = [];
    for await (const delta of result.textStream) deltas.push(delta);
    expect(deltas.length).toBeGreaterThan(10);
    expect(deltas.join("")).toBe(description);
    expect(await result.finishReason).toBe("stop");
    expect(await result.usage).toMatchObject({ inputTokens: 71, outputTokens: 36 });
  });

  test("emits the parts in the contract's order", async () => {
    const { stream } = await model.doStream(callOptions({ maxOutputTokens: 4 }));
    const parts = await readAll(stream);
    const types = parts.map(({ type }) => type);
    expect(types.slice(0, 3)).toEqual(["stream-start", "response-metadata", "text-start"]);
    expect(types.slice(-2)).toEqual(["text-end", "finish"]);
    expect(new Set(types.slice(3, -2))).toEqual(new Set(["text-delta"]));
    expect(parts.flatMap((part) => ("id" in part && part.type.startsWith("text") ? [part.id] : []))).toEqual(
      Array.from({ length: types.length - 3 }, () => "0"),
    );
  });

  test("adds the engine's outputs as raw parts if the call requests them", async () => {
    const { stream } = await model.doStream(callOptions({ maxOutputTokens: 1, includeRawChunks: true }));
    const raw = (await readAll(stream)).filter((part) => part.type === "raw");
    expect(raw.at(-1)?.rawValue).toMatchObject({ finishReason: "length", numOutputTokens: 1 });
  });

  test("rejects before the stream begins if the engine rejects the request", async () => {
    const text = "a red circle ".repeat(2000);
    const call = model.doStream(callOptions({ prompt: [{ role: "user", content: [{ type: "text", text }] }] }));
    await expect(call).rejects.toMatchObject({ code: "prompt_too_long" });
  });

  test("reports an error in the middle of the answer as a part, and finishes with it", async () => {
    const providerOptions = { fovea: { ignoreEos: true, extraArgs: { fails_after: 3 } } };
    const { stream } = await model.doStream(callOptions({ providerOptions }));
    const parts = await readAll(stream);
    expect(parts.filter(({ type }) => type === "text-delta").length).toBeGreaterThan(0);
    expect(parts.slice(-3)).toMatchObject([
      { type: "text-end" },
      { type: "error", error: { code: "logits_processor_failed", message: expect.stringContaining("told to fail") } },
      { type: "finish", finishReason: { unified: "error" } },
    ]);
  });
});

test("usage counts the tokens of thinking apart from those of the text", async () => {
  const scripted = createScriptedEngine(() => [
    { text: "<think>", reasoningStart: "before" },
    { text: "Two cities.", tokenIds: [1, 2] },
    "</think>",
    "Oslo.",
  ]);
  const thinking = fovea({ ...scripted, modelInfo: { ...scripted.modelInfo!, chatTemplate: "<think>" } });
  const outputTokens = { total: 5, text: 2, reasoning: 3 };
  expect(await thinking.doGenerate(callOptions())).toMatchObject({ usage: { outputTokens } });
  const { stream } = await thinking.doStream(callOptions());
  expect((await readAll(stream)).at(-1)).toMatchObject({ type: "finish", usage: { outputTokens } });
});

/** An answer that a call ends by its abort only. */
const lasting = { providerOptions: { fovea: { ignoreEos: true, extraArgs: endless.vllm_xargs } } };

describe("an abort", () => {
  test("rejects generateText with the signal's reason and frees the sequence", async () => {
    const controller = new AbortController();
    const call = generateText({ model, prompt: "a red circle", abortSignal: controller.signal, ...lasting });
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(1);
    controller.abort();
    await expect(call).rejects.toMatchObject({ name: "AbortError" });
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(0);
  });

  test("ends a stream and frees the sequence", async () => {
    const controller = new AbortController();
    const { stream } = await model.doStream(callOptions({ abortSignal: controller.signal, ...lasting }));
    const reader = stream.getReader();
    await reader.read();
    controller.abort();
    const readOn = async (): Promise<void> => {
      while (!(await reader.read()).done);
    };
    await expect(readOn()).rejects.toMatchObject({ name: "AbortError" });
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(0);
  });

  test("rejects a call that waits for the model to load", async () => {
    const loading = createEngine();
    const call = fovea(loading).doGenerate(callOptions({ abortSignal: AbortSignal.abort() }));
    await expect(call).rejects.toMatchObject({ name: "AbortError" });
    await loading.close();
  });

  test.for([0, 1, 5])("happens by itself when a reader leaves after %i parts", async (numParts) => {
    const before = engine.stats.numGenerationTokens;
    const { stream } = await model.doStream(callOptions(lasting));
    const reader = stream.getReader();
    for (let part = 0; part < numParts; part += 1) await reader.read();
    await reader.cancel();
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(0);
    // Otherwise it would have run until the model's length.
    expect(engine.stats.numGenerationTokens - before).toBeLessThan(engine.modelInfo!.maxModelLen / 2);
  });
});

describe("tools", () => {
  const inputSchema = jsonSchema<{ shape: string }>({
    type: "object",
    properties: { shape: { enum: ["circle", "square"] } },
    required: ["shape"],
    additionalProperties: false,
  });
  // The AI SDK's types of tools are incompatible with each other under exactOptionalPropertyTypes.
  const tools = { count: tool({ inputSchema, execute: async ({ shape }) => `${shape}: 2` }) } as ToolSet;
  // Penalties keep the small model, which does not know JSON, from writing white space forever.
  const penalties = { frequencyPenalty: 2, providerOptions: { fovea: { repetitionPenalty: 2 } } };
  const required = { tools, toolChoice: "required", maxOutputTokens: 400, ...penalties } as const;
  const call = { toolName: "count", input: { shape: expect.stringMatching(/^(circle|square)$/) } };

  test("are called, and their results answered, in a loop of the AI SDK", async () => {
    const result = await generateText({
      ...required,
      model,
      messages: ask("How many circles?"),
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    });
    const [first, second] = result.steps;
    expect(first!.finishReason).toBe("tool-calls");
    expect(first!.toolCalls[0]).toMatchObject(call);
    expect(first!.toolResults[0]!.output).toMatch(/^(circle|square): 2$/);
    expect(second!.text).toMatch(/\w/);
  });

  test("are streamed as input deltas that join to the input of the call", async () => {
    const { stream } = await model.doStream(
      callOptions({
        tools: [
          {
            type: "function",
            name: "count",
            inputSchema: {
              type: "object",
              properties: { n: { type: "integer", maximum: 9, minimum: 0 } },
              required: ["n"],
              additionalProperties: false,
            },
          },
        ],
        toolChoice: { type: "tool", toolName: "count" },
        ...penalties,
      }),
    );
    const parts = await readAll(stream);
    const input = parts.flatMap((part) => (part.type === "tool-input-delta" ? [part.delta] : [])).join("");
    expect(JSON.parse(input)).toEqual({ n: expect.any(Number) });
    expect(parts.map(({ type }) => type).filter((type) => type !== "tool-input-delta")).toEqual([
      "stream-start",
      "response-metadata",
      "tool-input-start",
      "tool-input-end",
      "tool-call",
      "finish",
    ]);
    expect(parts.find(({ type }) => type === "tool-call")).toMatchObject({ toolName: "count", input });
    expect(parts.at(-1)).toMatchObject({ finishReason: { unified: "tool-calls", raw: "tool_calls" } });
  });

  test("are hidden from the model if the choice is none", async () => {
    const options = { model, messages: ask("Describe the picture.") };
    const result = await generateText({ ...options, tools, toolChoice: "none" });
    expect(result).toMatchObject({ warnings: [], text: description });
  });
});

describe("unsupported features", () => {
  test("cause a warning if an answer is possible without them", async () => {
    const result = await generateText({ model, prompt: "How are you?", reasoning: "high" });
    expect(result.warnings).toMatchObject([{ type: "unsupported", feature: "reasoning" }]);
    const search = { type: "provider", id: "openai.web_search", name: "web_search", args: {} } as const;
    const { warnings } = await model.doGenerate(callOptions({ tools: [search] }));
    expect(warnings).toMatchObject([{ type: "unsupported", feature: "tool openai.web_search" }]);
  });

  test("are rejected otherwise", async () => {
    const sheet = { type: "file" as const, data: Buffer.from("a,b"), mediaType: "text/csv" };
    const withSheet = generateText({ model, messages: [{ role: "user", content: [sheet] }] });
    await expect(withSheet).rejects.toThrow("files of the type text/csv");
    const approval = { type: "tool-approval-response" as const, approvalId: "1", approved: true };
    const withApproval = model.doGenerate(callOptions({ prompt: [{ role: "tool", content: [approval] }] }));
    await expect(withApproval).rejects.toThrow(UnsupportedFunctionalityError);
  });

  test("are named by path if a provider option is wrong", async () => {
    const call = model.doGenerate(callOptions({ providerOptions: { fovea: { minP: "a lot" } } }));
    await expect(call).rejects.toThrow(InvalidArgumentError);
    await expect(call).rejects.toMatchObject({ argument: "providerOptions.fovea.minP" });
    const unknown = model.doGenerate(callOptions({ providerOptions: { fovea: { min_p: 0.1 } } }));
    await expect(unknown).rejects.toThrow(/min_p/);
  });
});

test("a full queue is an error that the AI SDK retries", async () => {
  const small = createEngine({ maxNumSequences: 1, maxNumWaiting: 0 }, { logitsProcessors: [Lasting] });
  await using _ = { [Symbol.asyncDispose]: () => small.close() };
  const running = await fovea(small).doStream(callOptions(lasting));
  const refused = fovea(small).doGenerate(callOptions());
  await expect(refused).rejects.toThrow(APICallError);
  await expect(refused).rejects.toMatchObject({ isRetryable: true, cause: { code: "queue_full" } });
  await running.stream.cancel();
});

test("URLs with schemes that the engine fetches reach its image source; the AI SDK does not download them", async () => {
  const fetched: string[] = [];
  const bucket: ImageSource = {
    schemes: ["s3"],
    async fetch(reference) {
      fetched.push(reference);
      return picture;
    },
  };
  const other = createEngine({}, { imageSources: [bucket] });
  await using _ = { [Symbol.asyncDispose]: () => other.close() };
  const { text } = await generateText({
    model: fovea(other, { imageSchemes: bucket.schemes }),
    messages: ask("Describe the picture.", new URL("s3://pictures/Scene.png")),
  });
  expect(text).toBe(description);
  expect(fetched).toEqual(["s3://pictures/Scene.png"]);
});

test("videos reach the engine with the sampling of the call", async () => {
  const scripted = createScriptedEngine(() => ["A cat."]);
  const video = { type: "file", mediaType: "video/mp4", data: { type: "data", data: "AAAA" } } as const;
  const given = (videoSampling: Record<string, number>): LanguageModelV4CallOptions =>
    callOptions({ prompt: [{ role: "user", content: [video] }], providerOptions: { fovea: { videoSampling } } });
  await fovea(scripted).doGenerate(given({ framesPerSecond: 0.5 }));
  expect(scripted.requests).toMatchObject([
    {
      prompt: { messages: [{ content: [{ type: "video", reference: "data:video/mp4;base64,AAAA" }] }] },
      videoSampling: { framesPerSecond: 0.5 },
    },
  ]);
  await expect(fovea(scripted).doGenerate(given({ numFrames: 2, framesPerSecond: 1 }))).rejects.toMatchObject({
    argument: "providerOptions.fovea.videoSampling",
    message: expect.stringMatching(/must be \{numFrames\} or \{framesPerSecond\}/),
  });
});
