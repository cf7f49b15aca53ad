/** Requests of plain JavaScript: what is wrong is named, and not found deep inside the engine. */
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { checkGenerationRequest } from "../../../engine/request/check-request.ts";

const samplingParams = createSamplingParams();
const tokens = { kind: "tokens", tokenIds: [1] };
const image = { type: "image", reference: "data:," };
const withImages = (...images: readonly unknown[]) => ({ prompt: { ...tokens, images } });
const chat = (message: object, fields: object = {}) => ({ prompt: { kind: "chat", messages: [message], ...fields } });
const withTools = (tools: unknown) => chat({ role: "user", content: "a" }, { tools });
const calls = (toolCalls: unknown) => chat({ role: "assistant", content: "", toolCalls });
const says = (content: unknown) => ({ prompt: { kind: "chat", messages: [{ role: "user", content }] } });

test.for<[object, string, string]>([
  [{ prompt: undefined }, "prompt", "undefined; expected an object"],
  [{ prompt: { kind: "foo" } }, "prompt.kind", '"foo"; expected "chat", "text", "parts" or "tokens"'],
  [{ prompt: { kind: "text" } }, "prompt.text", "undefined; expected a text"],
  [{ prompt: { kind: "tokens", tokenIds: "12" } }, "prompt.tokenIds", '"12"; expected a list of token ids'],
  [{ prompt: { kind: "parts" } }, "prompt.parts", "undefined; expected a list"],
  [{ prompt: { kind: "chat", messages: {} } }, "prompt.messages", "an object; expected a list"],
  [{ prompt: { kind: "chat", messages: [5] } }, "prompt.messages[0]", "5; expected an object"],
  [says(undefined), "prompt.messages[0].content", "undefined; expected a text or a list of parts"],
  [says([image, { type: "text" }]), "prompt.messages[0].content[1].text", "undefined; expected a text"],
  [
    says([{ type: "input_text", text: "a" }]),
    "prompt.messages[0].content[0].type",
    '"input_text"; expected "text", "image", "image_embeds", "video" or "document"',
  ],
  [
    says([{ type: "video" }]),
    "prompt.messages[0].content[0].reference",
    "undefined; expected a text, a list of texts, or null for a video that is cached",
  ],
  [withImages(image, "data:,"), "prompt.images[1]", '"data:,"; expected an object'],
  [
    withImages({ type: "image" }),
    "prompt.images[0].reference",
    "undefined; expected a text, or null for an image that is cached under its uuid",
  ],
  [withImages({ ...image, uuid: 5 }), "prompt.images[0].uuid", "5; expected a text"],
  [withImages({ type: "text", text: "a" }), "prompt.images[0].type", '"text"; expected "image" or "image_embeds"'],
  [
    withImages({ type: "image_embeds", reference: "data:,", grid: [1, 2.5, 2] }),
    "prompt.images[0].grid",
    "a list of 3 elements; expected three positive integers: times, rows and columns",
  ],
  [{ mmProcessorOptions: null }, "mmProcessorOptions", "null; expected an object"],
  [{ mmProcessorOptions: [] }, "mmProcessorOptions", "a list of 0 elements; expected an object"],
  [{ videoSampling: 5 }, "videoSampling", "5; expected an object"],
  [{ requestId: 5 }, "requestId", "5; expected a text"],
  [{ priority: Number.NaN }, "priority", "NaN; expected a number"],
  [{ onStage: {} }, "onStage", "an object; expected a function"],
  [withTools({}), "prompt.tools", "an object; expected a list"],
  [withTools([{ type: "function", function: { name: "a" } }]), "prompt.tools[0].name", "undefined; expected a text"],
  [
    withTools([{ name: "a", parameters: "{}" }]),
    "prompt.tools[0].parameters",
    '"{}"; expected a JSON Schema as an object, or null',
  ],
  [calls(5), "prompt.messages[0].toolCalls", "5; expected a list"],
  [
    calls([{ id: "b", function: { name: "a", arguments: "{}" } }]),
    "prompt.messages[0].toolCalls[0].name",
    "undefined; expected a text",
  ],
  [
    calls([{ id: "b", name: "a", arguments: "{}" }]),
    "prompt.messages[0].toolCalls[0].arguments",
    '"{}"; expected an object',
  ],
  [{ samplingParams: undefined }, "samplingParams", "undefined; expected the result of createSamplingParams"],
  [{ samplingParams: { temperature: 0 } }, "samplingParams", "an object; expected the result of createSamplingParams"],
])("%o is rejected by its field", ([fields, parameter, problem]) => {
  expect(() => checkGenerationRequest({ requestId: "a", prompt: tokens, samplingParams, ...fields })).toThrow(
    expect.objectContaining({ code: "invalid_argument", parameter, message: `${parameter} is ${problem}.` }),
  );
});

test.for<[string, object]>([
  ["token ids in a typed array", { prompt: { kind: "tokens", tokenIds: Int32Array.of(1), images: null } }],
  ["a named image", withImages({ type: "image", reference: null, uuid: "a" })],
  ["embeddings with a grid", withImages({ type: "image_embeds", reference: "data:,", grid: [1, 2, 2] })],
  ["a text as content, and options", { ...says("hello"), mmProcessorOptions: {} }],
  [
    "frames and documents",
    says([
      { type: "video", reference: ["data:,"] },
      { type: "document", reference: "data:," },
    ]),
  ],
])("%s is accepted", ([, fields]) => {
  expect(() => checkGenerationRequest({ requestId: "a", prompt: tokens, samplingParams, ...fields })).not.toThrow();
});
