/** Images of text completions, and fields of requests that change the prompt or the answer, on the whole service. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

let service: RunningService;
let scene: string;
let label: string;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "4", LIMIT_MM_PER_PROMPT: "image=2" });
  const read = async (name: string): Promise<string> => {
    const bytes = await readFile(new URL(`../../../models/fovea-shapes/examples/${name}`, import.meta.url));
    return `data:image/png;base64,${bytes.toString("base64")}`;
  };
  [scene, label] = await Promise.all([read("scene.png"), read("label.png")]);
});
afterAll(() => service[Symbol.asyncDispose]());

interface Choice {
  readonly text?: string;
  readonly message?: { readonly content: string };
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[];
  readonly logprobs: {
    readonly content?: readonly { readonly token: string; readonly bytes: readonly number[] }[];
    readonly tokens?: readonly string[];
    readonly top_logprobs?: readonly object[];
    readonly text_offset?: readonly number[];
  } | null;
}

interface Answer {
  readonly id: string;
  readonly choices: readonly Choice[];
  readonly prompt_token_ids?: readonly number[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly error?: { readonly message: string; readonly param: string | null; readonly code: string };
}

async function post(path: string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

const answerOf = async (path: string, body: object): Promise<Answer> =>
  (await (await post(path, { temperature: 0, max_tokens: 12, ...body })).json()) as Answer;
const chat = (body: object): Promise<Answer> => answerOf("/v1/chat/completions", body);
const complete = (body: object): Promise<Answer> => answerOf("/v1/completions", body);

const question = (...urls: readonly string[]) => ({
  role: "user",
  content: [
    ...urls.map((url) => ({ type: "image_url", image_url: { url } })),
    { type: "text", text: "Describe the picture." },
  ],
});

interface Chunk extends Pick<Answer, "id" | "prompt_token_ids"> {
  readonly choices: readonly (Choice & { readonly delta?: { readonly content?: string } })[];
  readonly usage?: Answer["usage"] | null;
}

async function chunksOf(path: string, body: object): Promise<readonly Chunk[]> {
  const response = await post(path, { temperature: 0, max_tokens: 12, stream: true, ...body });
  const blocks = (await response.text()).trimEnd().split("\n\n");
  return blocks.filter((block) => !block.endsWith("[DONE]")).map((block) => JSON.parse(block.slice(6)) as Chunk);
}

describe("images of a text completion", () => {
  /** The prompt of a conversation with a picture: with one image token each and with all, and as text. */
  async function promptOf(url: string) {
    const messages = [question(url)];
    const rendered = (await (await post("/v1/chat/completions/render", { messages })).json()) as {
      readonly token_ids: readonly number[];
      readonly features: {
        readonly mm_placeholders: { readonly image: readonly { readonly offset: number; readonly length: number }[] };
      };
    };
    const { offset, length } = rendered.features.mm_placeholders.image.at(0)!;
    const expanded = rendered.token_ids;
    const collapsed = [...expanded.slice(0, offset + 1), ...expanded.slice(offset + length)];
    const { prompt } = (await (await post("/detokenize", { tokens: collapsed })).json()) as { readonly prompt: string };
    return { messages, expanded, collapsed, text: prompt };
  }

  test("answers like chat for text, for token ids, and for token ids that hold the image's tokens", async () => {
    const { messages, expanded, collapsed, text } = await promptOf(scene);
    const asked = await chat({ messages });
    const expected = asked.choices.at(0)!.message!.content;
    expect(expected).toMatch(/^A large red circle/);
    for (const prompt of [text, collapsed, expanded]) {
      const answer = await complete({ prompt, images: [scene], add_special_tokens: false });
      expect(answer.choices.at(0)!.text?.trim()).toBe(expected.trim());
      expect(answer.usage.prompt_tokens).toBe(asked.usage.prompt_tokens);
    }
    const other = await complete({ prompt: text, images: [label], add_special_tokens: false });
    expect(other.choices.at(0)!.text?.trim()).not.toBe(expected.trim());
  });

  test("may be references, objects with a URL, and image parts, named by a uuid too", async () => {
    const { text } = await promptOf(scene);
    const images = [
      scene,
      { image_url: scene },
      { type: "image_url", image_url: { url: scene }, uuid: "completion" },
      { type: "input_image", image_url: scene },
      { type: "image_url", uuid: "completion" },
    ];
    const texts: (string | undefined)[] = [];
    for (const image of images) {
      const answer = await complete({ prompt: text, images: [image], add_special_tokens: false });
      texts.push(answer.choices.at(0)?.text);
    }
    expect(new Set(texts)).toEqual(new Set([expect.stringContaining("red circle")]));
  });

  test("are counted in the order of the placeholders", async () => {
    const answer = await complete({ prompt: "<image> and <image>", images: [scene, label], max_tokens: 1 });
    const tokenized = (await (
      await post("/tokenize", { prompt: "<image> and <image>", images: [scene, label] })
    ).json()) as {
      readonly count: number;
    };
    expect(answer.usage.prompt_tokens).toBe(tokenized.count);
  });

  test.for<[string, object, string]>([
    ["no list", { prompt: "<image>", images: "data:," }, "images"],
    ["a number", { prompt: "<image>", images: [5] }, "images[0]"],
    ["a text part", { prompt: "<image>", images: [{ type: "text", text: "a" }] }, "images[0]"],
    ["a part of an unknown type", { prompt: "<image>", images: [{ type: "sound" }] }, "images[0].type"],
    ["a video", { prompt: "<image>", images: [{ type: "video_url", video_url: "data:," }] }, "images[0]"],
    ["an image without a URL", { prompt: "<image>", images: [{ type: "image_url" }] }, "images[0].image_url"],
    ["bytes that are no image", { prompt: "<image> <image>", images: ["data:image/png;base64,AAAA"] }, "prompt"],
    ["a broken second image", { prompt: "<image> <image>", images: [null, "data:image/png;base64,AAAA"] }, "images[1]"],
    ["a reference of an unknown scheme", { prompt: "<image>", images: ["ftp://a/b.png"] }, "images[0]"],
    ["more images than placeholders", { prompt: "<image>", images: ["data:,a", "data:,b"] }, "prompt"],
    ["more images than allowed", { prompt: "a", images: ["data:,a", "data:,b", "data:,c"] }, "prompt"],
    ["images beside two prompts", { prompt: ["<image>", "<image>"], images: ["data:,a"] }, "images"],
    ["a million images", { prompt: "<image>", images: Array.from({ length: 1_000_000 }, () => "") }, "images"],
  ])("are rejected: %s", async ([, body, param]) => {
    const images = (body as { images: unknown }).images;
    const filled = Array.isArray(images) ? images.map((image: unknown) => image ?? scene) : images;
    const response = await post("/v1/completions", { ...body, images: filled });
    const { error } = (await response.json()) as Answer;
    expect([response.status, error?.param]).toEqual([400, param]);
  });
});

test("usage says how many tokens of the prompt were cached, also in the last chunk of a stream", async () => {
  const messages = [question(scene)];
  await chat({ messages });
  const whole = await chat({ messages });
  expect(whole.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0);
  const chunks = await chunksOf("/v1/chat/completions", { messages, stream_options: { include_usage: true } });
  expect(chunks.at(-1)!.usage!.prompt_tokens_details).toEqual(whole.usage.prompt_tokens_details);
  expect(chunks.slice(0, -1).map(({ usage }) => usage)).toEqual(chunks.slice(1).map(() => null));
  const completion = await chunksOf("/v1/completions", { prompt: "A large", stream_options: { include_usage: true } });
  expect(completion.at(-1)!.usage!.prompt_tokens_details).toMatchObject({ cached_tokens: expect.any(Number) });
});

describe("continue_final_message", () => {
  test("continues the assistant's text as if the model had written its start", async () => {
    const messages = [question(scene)];
    const whole = (await chat({ messages, max_tokens: 20 })).choices.at(0)!.message!.content;
    const begun = whole.split(" ").slice(0, 4).join(" ");
    const continued = await chat({
      messages: [...messages, { role: "assistant", content: begun }],
      continue_final_message: true,
      max_tokens: 20,
    });
    const text = begun + continued.choices.at(0)!.message!.content;
    expect(text.startsWith(whole)).toBe(true);
  });

  test("is rejected without a text to continue", async () => {
    const messages = [{ role: "user", content: [{ type: "image_url", image_url: { url: scene } }] }];
    const { error } = await chat({ messages, continue_final_message: true });
    expect(error).toMatchObject({
      param: "messages",
      message: expect.stringMatching(/no text that could be continued/),
    });
  });
});

describe("return_token_ids", () => {
  test("returns the ids of prompt and answer, whole and streamed", async () => {
    const body = { messages: [question(scene)], return_token_ids: true };
    const whole = await chat(body);
    const tokenized = (await (await post("/tokenize", { messages: body.messages })).json()) as {
      readonly tokens: object;
    };
    expect(whole.prompt_token_ids).toEqual(tokenized.tokens);
    const chunks = await chunksOf("/v1/chat/completions", body);
    expect(chunks.at(0)!.prompt_token_ids).toEqual(tokenized.tokens);
    expect(chunks.slice(1).some((chunk) => "prompt_token_ids" in chunk)).toBe(false);
    const ids = whole.choices.at(0)!.token_ids!;
    expect(chunks.flatMap(({ choices }) => choices.flatMap(({ token_ids: tokenIds }) => tokenIds ?? []))).toEqual(ids);
    expect(ids).toHaveLength(12);
  });

  test("returns them with each choice of a text completion", async () => {
    const body = { prompt: ["A large", "A small red"], return_token_ids: true };
    const whole = await complete(body);
    const chunks = await chunksOf("/v1/completions", body);
    for (const [index, { token_ids: tokenIds, prompt_token_ids: promptIds, text }] of whole.choices.entries()) {
      const choices = chunks.flatMap((chunk) =>
        chunk.choices.filter((choice) => "index" in choice && choice.index === index),
      );
      expect(choices.flatMap((choice) => choice.token_ids)).toEqual(tokenIds);
      expect(choices.flatMap((choice) => choice.prompt_token_ids ?? [])).toEqual(promptIds);
      expect(choices.filter((choice) => choice.prompt_token_ids)).toHaveLength(1);
      const { prompt } = (await (await post("/detokenize", { tokens: tokenIds! })).json()) as {
        readonly prompt: string;
      };
      expect(prompt).toContain(text!.trim());
    }
  });

  test("is off by default", async () => {
    const answer = await chat({ messages: [question()] });
    expect("prompt_token_ids" in answer || "token_ids" in answer.choices.at(0)!).toBe(false);
  });
});

test("return_tokens_as_token_ids names tokens by their ids in all logprobs, and keeps offsets and bytes", async () => {
  const fields = { return_token_ids: true, return_tokens_as_token_ids: true };
  const chatAnswer = await chat({ messages: [question()], logprobs: true, top_logprobs: 2, ...fields });
  const { token_ids: chatIds, logprobs: chatLogprobs, message } = chatAnswer.choices.at(0)!;
  expect(chatLogprobs!.content!.map(({ token }) => token)).toEqual(chatIds!.map((id) => `token_id:${id}`));
  expect(Buffer.from(chatLogprobs!.content!.flatMap(({ bytes }) => bytes)).toString()).toContain(
    message!.content.trim(),
  );
  const asked = { prompt: "A large", logprobs: 2, echo: true };
  const named = (await complete(asked)).choices.at(0)!;
  const {
    token_ids: ids,
    prompt_token_ids: promptIds,
    logprobs,
  } = (await complete({ ...asked, ...fields })).choices.at(0)!;
  expect(logprobs!.tokens).toEqual([...promptIds!, ...ids!].map((id) => `token_id:${id}`));
  expect(logprobs!.text_offset).toEqual(named.logprobs!.text_offset);
  expect(Object.keys(logprobs!.top_logprobs!.at(-1)!)).toContain(`token_id:${ids!.at(-1)}`);
});

describe("request_id", () => {
  test("is the id of the answer, of its header and of the log", async () => {
    const response = await post("/v1/completions", { prompt: "A", max_tokens: 1, request_id: "order:17/a" });
    expect(((await response.json()) as Answer).id).toBe("cmpl-order:17/a");
    expect(response.headers.get("x-request-id")).toBe("order:17/a");
    await expect.poll(() => service.log()).toContain('"requestId":"order:17/a"');
    const chunks = await chunksOf("/v1/chat/completions", { messages: [question()], request_id: "stream" });
    expect(new Set(chunks.map(({ id }) => id))).toEqual(new Set(["chatcmpl-stream"]));
  });

  test("does not replace the id that the request's header has", async () => {
    const body = { prompt: "A", max_tokens: 1, request_id: "body" };
    const response = await post("/v1/completions", body, { "x-request-id": "header" });
    expect(response.headers.get("x-request-id")).toBe("header");
    expect(((await response.json()) as Answer).id).toBe("cmpl-body");
  });

  test("may be equal in requests that run together", async () => {
    const body = { prompt: "A", max_tokens: 12, request_id: "same" };
    const responses = await Promise.all([1, 2, 3].map(() => post("/v1/completions", body)));
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});
