/** Prompts that are shortened, and images that the model does not see, over HTTP with the shipped checkpoint. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import { pictureReference } from "../support/checkpoints/goldens.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices: readonly {
    readonly logprobs: {
      readonly content: readonly { readonly top_logprobs: readonly { logprob: number }[] }[];
    } | null;
  }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: {
      readonly multimodal_tokens: { readonly image: number };
      readonly omitted_images?: number;
    };
  };
}

const TOKENS_PER_IMAGE = 64;
const MODEL_LENGTH = 256;
let service: RunningService;
let scene: string;
let photo: string;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "2", MAX_MODEL_LEN: String(MODEL_LENGTH), INLINE_IMAGES: "all" });
  const bytes = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  scene = `data:image/png;base64,${bytes.toString("base64")}`;
  photo = await pictureReference("photo.png");
});
afterAll(() => service[Symbol.asyncDispose]());

async function post(path: string, fields: object, { baseUrl } = service): Promise<Response> {
  return fetch(`${baseUrl}/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ temperature: 0, ...fields }),
  });
}

const turn = (role: string, content: unknown) => ({ role, content });
const image = (url: string) => ({ type: "image_url", image_url: { url } });
const messages = (numImages: number) => [
  ...Array.from({ length: numImages }, (_, index) => [
    turn("user", [image(index % 2 === 0 ? photo : scene), { type: "text", text: "What is this?" }]),
    turn("assistant", "A picture."),
  ]).flat(),
  turn("user", [image(scene), { type: "text", text: "And this?" }]),
];

test("whole images go, oldest first, when max_tokens leaves no room for all", async () => {
  const fields = { messages: messages(3), max_tokens: 100 };
  const refused = await post("chat/completions", fields);
  expect(refused.status).toBe(400);
  expect(((await refused.json()) as Answer).error).toMatchObject({
    code: "context_length_exceeded",
    message: expect.stringMatching(/has \d+ tokens; this model's maximum context length is 256 tokens/),
  });
  const response = await post("chat/completions", { ...fields, truncate_prompt_tokens: -1 });
  const { usage } = (await response.json()) as Answer;
  expect(response.status).toBe(200);
  const numShown = usage.prompt_tokens_details.multimodal_tokens.image / TOKENS_PER_IMAGE;
  expect([1, 2]).toContain(numShown);
  expect(usage.prompt_tokens_details.omitted_images).toBe(4 - numShown);
  expect(response.headers.get("x-omitted-images")).toBe(String(4 - numShown));
  expect(usage.prompt_tokens).toBeLessThanOrEqual(MODEL_LENGTH - 100);
});

test("a stream has the header and the same usage", async () => {
  const fields = { messages: messages(2), truncate_prompt_tokens: 100, max_tokens: 4 };
  const whole = await post("chat/completions", fields);
  const { usage } = (await whole.json()) as Answer;
  const response = await post("chat/completions", {
    ...fields,
    stream: true,
    stream_options: { include_usage: true },
  });
  expect(response.headers.get("x-omitted-images")).toBe("2");
  const events = (await response.text()).trimEnd().split("\n\n").slice(0, -1);
  const last = JSON.parse(events.at(-1)!.slice("data: ".length)) as Answer;
  expect(last.usage.prompt_tokens_details.omitted_images).toBe(2);
  expect(last.usage.prompt_tokens).toBe(usage.prompt_tokens);
});

test("a prompt that fits is not changed, and its answer names no omitted images", async () => {
  const response = await post("chat/completions", {
    messages: messages(1),
    truncate_prompt_tokens: -1,
    truncation_side: "right",
    max_tokens: 4,
  });
  expect(response.headers.get("x-omitted-images")).toBeNull();
  expect(((await response.json()) as Answer).usage.prompt_tokens_details).not.toHaveProperty("omitted_images");
});

test("several prompts are shortened one by one, and their omitted images add up", async () => {
  const picture = `<img src="${scene}">`;
  const response = await post("completions", {
    prompt: [`${picture}${picture} Compare.`, `${picture} Describe.`, "Hello"],
    truncate_prompt_tokens: 70,
    max_tokens: 4,
  });
  const { usage } = (await response.json()) as Answer;
  expect(usage.prompt_tokens_details.omitted_images).toBe(1);
  expect(response.headers.get("x-omitted-images")).toBe("1");
});

test.for<[string, object, string, RegExp]>([
  [
    "no token",
    { truncate_prompt_tokens: 0 },
    "truncate_prompt_tokens",
    /^truncate_prompt_tokens must be -1 or at least 1, got 0/,
  ],
  [
    "too many tokens",
    { truncate_prompt_tokens: 257 },
    "truncate_prompt_tokens",
    /^truncate_prompt_tokens is 257, .* length of 256/,
  ],
  ["a text", { truncate_prompt_tokens: "all" }, "truncate_prompt_tokens", /must be a number/],
  ["a wrong side", { truncate_prompt_tokens: 5, truncation_side: "middle" }, "truncation_side", /left or right/],
  ["no room", { truncate_prompt_tokens: -1, max_tokens: 256 }, "max_tokens", /256; the model length of 256 leaves no/],
])("rejects a truncation with %s, and names the field", async ([, fields, param, message]) => {
  const response = await post("chat/completions", { messages: messages(0), ...fields });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as Answer;
  expect(error).toMatchObject({ param, message: expect.stringMatching(message) });
});

test("ADD_ALL_IMAGES_TO_PROMPT=false shows the model the last image only", async () => {
  await using lastOnly = await startService({ MAX_NUM_SEQS: "2", ADD_ALL_IMAGES_TO_PROMPT: "false" });
  const ask = async (first: string, to: RunningService) => {
    const content = [image(first), image(scene), { type: "text", text: "Describe the picture." }];
    const fields = { messages: [turn("user", content)], max_tokens: 8, logprobs: true, top_logprobs: 5 };
    return (await (await post("chat/completions", fields, to)).json()) as Answer;
  };
  const difference = (left: Answer, right: Answer): number => {
    const logprobs = ({ choices }: Answer) =>
      choices.flatMap((choice) => choice.logprobs!.content.at(0)!.top_logprobs.map(({ logprob }) => logprob));
    return Math.max(...logprobs(left).map((value, index) => Math.abs(value - logprobs(right).at(index)!)));
  };
  const [withPhoto, withScene] = [await ask(photo, lastOnly), await ask(scene, lastOnly)];
  // Rounding differs with the prefixes that the two requests reuse.
  expect(difference(withPhoto, withScene)).toBeLessThan(0.001);
  expect(withPhoto.usage.prompt_tokens_details).toMatchObject({
    multimodal_tokens: { image: TOKENS_PER_IMAGE },
    omitted_images: 1,
  });
  expect(difference(await ask(photo, service), await ask(scene, service))).toBeGreaterThan(0.1);
});
