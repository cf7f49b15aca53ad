/** /tokenize, /detokenize and the render routes over HTTP, with the shipped checkpoint. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

let service: RunningService;
let picture: string;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "4", API_KEY: "one,two", LIMIT_MM_PER_PROMPT: "image=2" });
  const bytes = await readFile(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));
  picture = `data:image/png;base64,${bytes.toString("base64")}`;
});
afterAll(() => service[Symbol.asyncDispose]());

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly [field: string]: unknown;
}

/** Answers without `error` are cast to their type by the callers. */
async function post(
  path: string,
  body: object,
  key = "one",
): Promise<{ readonly status: number; readonly body: Answer }> {
  const response = await fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

interface Tokenized {
  readonly count: number;
  readonly max_model_len: number;
  readonly tokens: readonly number[];
  readonly token_strs: readonly string[] | null;
}

interface Rendered {
  readonly token_ids: readonly number[];
  readonly features: {
    readonly mm_hashes: { readonly image: readonly string[] };
    readonly mm_placeholders: { readonly image: readonly { readonly offset: number; readonly length: number }[] };
  } | null;
  readonly sampling_params: Readonly<Record<string, unknown>>;
}

const usageOf = async (path: string, body: object): Promise<number> => {
  const { usage } = (await post(path, { ...body, max_tokens: 1 })).body;
  return (usage as { readonly prompt_tokens: number }).prompt_tokens;
};

const tokenize = async (body: object): Promise<Tokenized> =>
  (await post("/tokenize", body)).body as unknown as Tokenized;
const renderChat = async (body: object, key?: string): Promise<Rendered> =>
  (await post("/v1/chat/completions/render", body, key)).body as unknown as Rendered;
const renderCompletion = async (body: object): Promise<readonly Rendered[]> =>
  (await post("/v1/completions/render", body)).body as unknown as readonly Rendered[];

const messagesWith = (...urls: readonly string[]) => [
  {
    role: "user",
    content: [
      ...urls.map((url) => ({ type: "image_url", image_url: { url } })),
      { type: "text", text: "Describe the picture." },
    ],
  },
];

describe("/tokenize", () => {
  test.for([0, 1, 2])("counts a conversation with %i pictures like the engine", async (numImages) => {
    const messages = messagesWith(...Array.from({ length: numImages }, () => picture));
    const body = await tokenize({ messages });
    expect(body.count).toBe(await usageOf("/v1/chat/completions", { messages }));
    expect(body.tokens).toHaveLength(body.count);
    expect(body.token_strs).toBeNull();
    expect(body.max_model_len).toBeGreaterThan(body.count);
  });

  test("counts a prompt like the engine, with and without special tokens", async () => {
    const prompt = "A large red circle";
    for (const add_special_tokens of [true, false]) {
      const body = await tokenize({ prompt, add_special_tokens });
      expect(body.count).toBe(await usageOf("/v1/completions", { prompt, add_special_tokens }));
    }
  });

  test("returns tokens in the vocabulary's spelling on request", async () => {
    const body = await tokenize({
      prompt: "A large red circle",
      add_special_tokens: false,
      return_token_strs: true,
    });
    expect(body.token_strs).toHaveLength(body.count);
    expect(body.token_strs!.join("").replaceAll(/[Ġ▁]/g, " ").trim()).toBe("A large red circle");
  });

  test("leaves out the generation prompt on request", async () => {
    const messages = messagesWith();
    const whole = await tokenize({ messages });
    const without = await tokenize({ messages, add_generation_prompt: false });
    expect(without.tokens).toEqual(whole.tokens.slice(0, without.count));
    expect(without.count).toBeLessThan(whole.count);
  });

  test("counts prompts that the model is too short for, up to a limit", async () => {
    const prompt = "circle ".repeat(5000);
    const body = await tokenize({ prompt });
    expect(body.count).toBeGreaterThan(body.max_model_len);
    expect((await post("/v1/completions", { prompt })).body.error).toMatchObject({ code: "context_length_exceeded" });
    const longer = await post("/tokenize", { prompt: "circle ".repeat(200_000) });
    expect(longer.status).toBe(400);
    expect(longer.body.error).toMatchObject({ code: "context_length_exceeded", param: "prompt" });
    expect(longer.body.error?.message).toMatch(/^The prompt has \d+ tokens; .* up to 131072 tokens\.$/);
  });

  test.for<[string, object, string | null]>([
    ["neither a prompt nor messages", {}, "prompt"],
    ["both", { prompt: "a", messages: messagesWith() }, "prompt"],
    ["a prompt of another type", { prompt: 5 }, "prompt"],
    ["a list of prompts", { prompt: ["a"] }, "prompt"],
    ["a flag of another type", { prompt: "a", return_token_strs: "yes" }, "return_token_strs"],
    ["messages of another type", { messages: "a" }, "messages"],
    ["too many pictures", { messages: messagesWith("data:,a", "data:,a", "data:,a") }, "messages"],
    [
      "a picture that is none",
      { messages: messagesWith("data:image/png;base64,AAAA") },
      "messages[0].content[0].image_url",
    ],
  ])("rejects %s", async ([, body, param]) => {
    const answer = await post("/tokenize", body);
    expect([answer.status, answer.body.error?.param]).toEqual([400, param]);
  });

  test("rejects a model that is not served", async () => {
    expect((await post("/tokenize", { prompt: "a", model: "other" })).status).toBe(404);
  });
});

describe("/detokenize", () => {
  test("returns the text of the tokens", async () => {
    const prompt = "A large red circle, 12 km.\nÄ";
    const body = await tokenize({ prompt, add_special_tokens: false });
    expect((await post("/detokenize", { tokens: body.tokens })).body).toEqual({ prompt });
    expect((await post("/detokenize", { tokens: [] })).body).toEqual({ prompt: "" });
  });

  test.for<[string, unknown, string]>([
    ["no list", "1", "tokens"],
    ["nothing", undefined, "tokens"],
    ["a fraction", [1, 1.5], "tokens[1]"],
    ["a negative id", [-1], "tokens[0]"],
    ["an id outside the vocabulary", [1, 1_000_000_000], "tokens[1]"],
    ["too many ids", Array.from({ length: 1_048_577 }, () => 1), "tokens"],
  ])("rejects %s", async ([, tokens, param]) => {
    const answer = await post("/detokenize", { tokens });
    expect([answer.status, answer.body.error?.param]).toEqual([400, param]);
  });

  test("answers a million tokens", async () => {
    const { status, body } = await post("/detokenize", { tokens: Array.from({ length: 1_000_000 }, () => 60) });
    expect([status, typeof body.prompt]).toEqual([200, "string"]);
  });
});

describe("/v1/chat/completions/render", () => {
  test("returns the prompt's tokens with the hashes and ranges of its pictures", async () => {
    const messages = messagesWith(picture, picture);
    const body = await renderChat({
      messages,
      max_tokens: 7,
      temperature: 1,
      top_p: 0.5,
    });
    const tokenized = await tokenize({ messages });
    expect(body).toMatchObject({
      request_id: expect.stringMatching(/^chatcmpl-/),
      model: "fovea-shapes",
      stream: false,
      sampling_params: { n: 1, max_tokens: 7, top_p: 0.5 },
    });
    expect(body.token_ids).toEqual(tokenized.tokens);
    const { mm_hashes: hashes, mm_placeholders: placeholders } = body.features!;
    expect(hashes.image).toHaveLength(2);
    expect(hashes.image[0]).toBe(hashes.image[1]);
    const first = placeholders.image.at(0)!;
    const second = placeholders.image.at(1)!;
    expect(second.offset).toBeGreaterThanOrEqual(first.offset + first.length);
    const imageToken = body.token_ids[first.offset];
    const inRanges = placeholders.image.flatMap(({ offset, length }) => body.token_ids.slice(offset, offset + length));
    expect(inRanges).toEqual(body.token_ids.filter((tokenId) => tokenId === imageToken));
  });

  test("returns equal hashes for equal pictures of one tenant only", async () => {
    const hashOf = async (key: string, fields: object = {}): Promise<string> => {
      const body = await renderChat({ messages: messagesWith(picture), ...fields }, key);
      return body.features!.mm_hashes.image[0]!;
    };
    const hash = await hashOf("one");
    expect(await hashOf("one")).toBe(hash);
    expect(await hashOf("two")).not.toBe(hash);
    expect(await hashOf("one", { cache_salt: "salt" })).not.toBe(hash);
  });

  test("rejects the same requests as the generating route", async () => {
    for (const fields of [{ messages: [] }, { messages: messagesWith(), top_p: 2 }, { messages: 5 }]) {
      const rendered = await post("/v1/chat/completions/render", fields);
      expect(rendered).toEqual(await post("/v1/chat/completions", fields));
      expect(rendered.status).toBe(400);
    }
  });
});

describe("/v1/completions/render", () => {
  test("returns one entry per prompt", async () => {
    const body = await renderCompletion({ prompt: ["A large", "A small red"] });
    expect(body).toHaveLength(2);
    for (const [index, prompt] of ["A large", "A small red"].entries()) {
      const tokenized = await tokenize({ prompt });
      expect(body[index]).toMatchObject({ token_ids: tokenized.tokens, features: null });
    }
  });

  test("limits max_tokens to the room that the prompt leaves", async () => {
    const body = await renderCompletion({ prompt: "A", max_tokens: 1_000_000 });
    const tokenized = await tokenize({ prompt: "A" });
    expect(body[0]!.sampling_params.max_tokens).toBe(tokenized.max_model_len - tokenized.count);
  });

  test("rejects a prompt that does not fit", async () => {
    const { status } = await post("/v1/completions/render", { prompt: "circle ".repeat(5000) });
    expect(status).toBe(400);
  });
});

describe("/invocations", () => {
  test("answers a conversation and a prompt, streamed and whole", async () => {
    const chat = { messages: messagesWith(picture), temperature: 0, max_tokens: 8 };
    const invoked = await post("/invocations", chat);
    expect(invoked.body).toMatchObject({ object: "chat.completion" });
    const { body } = await post("/v1/chat/completions", chat);
    expect(invoked.body.choices).toEqual(body.choices);
    expect((await post("/invocations", { prompt: "A", max_tokens: 2 })).body).toMatchObject({
      object: "text_completion",
    });
    const stream = await fetch(`${service.baseUrl}/invocations`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: "Bearer one" },
      body: JSON.stringify({ ...chat, stream: true }),
    });
    expect(await stream.text()).toMatch(/chat\.completion\.chunk[\s\S]*data: \[DONE\]\n\n$/);
  });

  test("rejects another body, and a request without a key", async () => {
    const other = await post("/invocations", { inputs: "a" });
    expect([other.status, other.body.error?.message]).toEqual([400, expect.stringMatching(/messages .* or prompt/)]);
    expect((await post("/invocations", { prompt: "A" }, "wrong")).status).toBe(401);
  });
});

test("/version and /load need no key", async () => {
  const version = await fetch(`${service.baseUrl}/version`);
  expect(await version.json()).toEqual({ version: expect.stringMatching(/^\d+\.\d+\.\d+/) });
  const load = await fetch(`${service.baseUrl}/load`);
  expect(await load.json()).toEqual({ server_load: 0 });
});
