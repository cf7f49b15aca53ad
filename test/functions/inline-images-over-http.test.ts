/** Pictures inside texts, over HTTP with the shipped checkpoint. */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import sharp from "sharp";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly { readonly text?: string; readonly message?: { readonly content: string } }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly multimodal_tokens: { readonly image: number } };
  };
}

const TOKENS_PER_IMAGE = 64;
const MEBIBYTE = 1024 ** 2;
let everywhere: RunningService;
let byDefault: RunningService;
let off: RunningService;
const url: Record<"jpeg" | "png" | "webp", string> = { jpeg: "", png: "", webp: "" };
const inline = (reference: string) => `<img src="${reference}">`;

beforeAll(async () => {
  const settings = { MAX_NUM_SEQS: "2", MAX_IMAGE_BYTES: "8MiB", MAX_BODY_BYTES: "32MiB" };
  everywhere = await startService({ ...settings, INLINE_IMAGES: "all" });
  byDefault = await startService(settings);
  off = await startService({ ...settings, INLINE_IMAGES: "off" });
  const scene = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  for (const type of ["jpeg", "png", "webp"] as const) {
    const bytes = await sharp(scene).toFormat(type).toBuffer();
    url[type] = `data:image/${type};base64,${bytes.toString("base64")}`;
  }
});
afterAll(async () => {
  for (const service of [everywhere, byDefault, off]) await service[Symbol.asyncDispose]();
});

async function post({ baseUrl }: RunningService, path: string, fields: object): Promise<Answer & { status: number }> {
  const response = await fetch(`${baseUrl}/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ temperature: 0, max_tokens: 12, ...fields }),
  });
  return { status: response.status, ...((await response.json()) as Answer) };
}

const complete = (service: RunningService, prompt: string | readonly string[]) =>
  post(service, "completions", { prompt });
const chat = (service: RunningService, messages: readonly object[]) => post(service, "chat/completions", { messages });
const numImageTokens = ({ usage }: Answer) => usage?.prompt_tokens_details.multimodal_tokens.image;

test.for(["jpeg", "png", "webp"] as const)("a prompt contains a %s picture", async (type) => {
  const answer = await complete(byDefault, `USER: ${inline(url[type])}\nDescribe the picture. ASSISTANT:`);
  expect(answer).toMatchObject({ status: 200 });
  expect(numImageTokens(answer)).toBe(TOKENS_PER_IMAGE);
});

test("a chat reads a picture in the text of any turn like the same picture as a part", async () => {
  const asPart = { type: "image_url", image_url: { url: url.png } };
  const asText = (text: string) => ({ type: "text", text });
  const conversation = (picture: readonly object[] | string, again: readonly object[] | string) => [
    { role: "system", content: "Look closely." },
    { role: "user", content: picture },
    { role: "assistant", content: again },
    { role: "user", content: "What is in the picture?" },
  ];
  const parts = await chat(everywhere, conversation([asText("See "), asPart], [asText("Here: "), asPart, asText("!")]));
  expect(parts.status).toBe(200);
  const texts = await chat(everywhere, conversation(`See ${inline(url.png)}`, `Here: ${inline(url.png)}!`));
  const mixed = await chat(everywhere, conversation([asText(`See ${inline(url.png)}`)], `Here: ${inline(url.png)}!`));
  for (const answer of [texts, mixed]) {
    expect(answer.choices).toEqual(parts.choices);
    expect(answer.usage).toMatchObject({ prompt_tokens: parts.usage!.prompt_tokens });
    expect(numImageTokens(answer)).toBe(2 * TOKENS_PER_IMAGE);
  }
});

test("a picture in the system turn is an image too", async () => {
  const system = { role: "system", content: `The house style: ${inline(url.jpeg)}` };
  expect(numImageTokens(await chat(everywhere, [system, { role: "user", content: "Hello" }]))).toBe(TOKENS_PER_IMAGE);
});

test("by default only completions read pictures from texts, and INLINE_IMAGES=off turns that off", async () => {
  const small = `<img src="data:image/png;base64,QUJD">`;
  const messages = [{ role: "user", content: small }];
  expect((await complete(byDefault, small)).error?.code).toBe("invalid_image");
  expect(numImageTokens(await chat(byDefault, messages))).toBe(0);
  expect(numImageTokens(await complete(off, small))).toBe(0);
  expect((await chat(everywhere, messages)).error).toMatchObject({
    code: "invalid_image",
    param: "messages[0].content",
  });
});

const padded = (numBytes: number) => randomBytes(numBytes).toString("base64");

test.for<[string, () => string, string]>([
  ["not closed", () => `<img src="${url.png}`, "invalid_image_reference"],
  ["of a refused type", () => inline(url.png.replace("image/png", "image/svg+xml")), "invalid_image_reference"],
  ["cut off inside a group of four", () => inline(url.png.slice(0, -2)), "invalid_image_reference"],
  ["padded in the middle", () => inline(url.png.replace(/.{4}$/, "==AB")), "invalid_image_reference"],
  ["not an image", () => inline(`data:image/png;base64,${padded(999)}`), "invalid_image"],
  ["of 10 MB", () => inline(`data:image/png;base64,${padded(10 * MEBIBYTE)}`), "image_too_large"],
  ["sent 17 times", () => inline(url.png).repeat(17), "too_many_images"],
])("rejects a picture that is %s, and names its field", async ([, prompt, code]) => {
  const bad = await complete(everywhere, prompt());
  expect(bad).toMatchObject({ status: 400, error: { code, param: "prompt" } });
  expect(bad.error!.message.length).toBeLessThan(400);
  const second = await post(everywhere, "completions", { prompt: ["fine", prompt()] });
  expect(second).toMatchObject({ status: 400, error: { code } });
  const inChat = await chat(everywhere, [
    { role: "user", content: [{ type: "text", text: "Hi" }] },
    { role: "assistant", content: [{ type: "text", text: prompt() }] },
    { role: "user", content: "Again?" },
  ]);
  const path = code === "too_many_images" ? "messages" : "messages[1].content[0].text";
  expect(inChat).toMatchObject({ status: 400, error: { code, param: path } });
});

test("a picture given twice stands twice in the prompt", async () => {
  const answer = await complete(byDefault, `${inline(url.png)}${inline(url.png)} Compare.`);
  expect(numImageTokens(answer)).toBe(2 * TOKENS_PER_IMAGE);
});
