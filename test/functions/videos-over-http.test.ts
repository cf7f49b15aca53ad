/** Videos over HTTP with the shipped checkpoint, whose model sees their frames as the pictures of the message. */
import { readFile } from "node:fs/promises";
import OpenAI from "openai";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startMediaServers } from "../support/servers/media-servers.ts";
import type { MediaServers } from "../support/servers/media-servers.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

interface ByModality<Value> {
  readonly image: readonly Value[];
  readonly video: readonly Value[];
}

interface Answer {
  readonly features?: {
    readonly mm_hashes: ByModality<string>;
    readonly mm_placeholders: ByModality<{ readonly offset: number }>;
  };
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly { readonly message: { readonly content: string } }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly multimodal_tokens: { readonly image: number; readonly video?: number } };
  };
}

/** A JPEG of one colour, in base64. */
async function frameOf(background: string, width = 48): Promise<string> {
  const picture = sharp({ create: { width, height: 40, channels: 3, background } });
  return (await picture.jpeg().toBuffer()).toString("base64");
}

const frames = await Promise.all(["#c03020", "#20c030", "#3020c0", "#c0c020"].map((colour) => frameOf(colour)));
const videoOf = (...shown: readonly string[]) => ({
  type: "video_url",
  video_url: { url: `data:video/jpeg;base64,${shown.join(",")}` },
});
const pictures = frames.map((frame) => ({
  type: "image_url",
  image_url: { url: `data:image/jpeg;base64,${frame}` },
}));
const question = { type: "text", text: "Describe the picture." };
const about = (...parts: readonly object[]) => [{ role: "user", content: [...parts, question] }];

describe("frames", () => {
  let service: RunningService;
  beforeAll(async () => {
    service = await startService({
      LIMIT_MM_PER_PROMPT: "image=4,video=2",
      MAX_VIDEO_FRAMES: "4",
      VIDEO_NUM_FRAMES: "3",
      MAX_VIDEO_BYTES: "4KiB",
    });
  });
  afterAll(() => service[Symbol.asyncDispose]());

  async function post(path: string, body: object): Promise<{ readonly status: number; readonly body: Answer }> {
    const response = await fetch(`${service.baseUrl}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: (await response.json()) as Answer };
  }

  const ask = (messages: readonly object[], fields: object = {}) =>
    post("/v1/chat/completions", { messages, temperature: 0, max_tokens: 8, ...fields });

  test("are answered like pictures, in every form and on every route", async () => {
    const { body: expected } = await ask(about(...pictures));
    const { content } = expected.choices![0]!.message;
    const video = videoOf(...frames);
    for (const part of [video, { type: "video", video: pictures.map(({ image_url: { url } }) => url) }]) {
      const { body } = await ask(about(part));
      expect(body.choices![0]!.message.content).toBe(content);
      expect(body.usage).toEqual({ ...expected.usage, prompt_tokens_details: expect.any(Object) });
    }
    const { body: tokenized } = await post("/tokenize", { messages: about(video) });
    expect(tokenized).toMatchObject({ count: expected.usage!.prompt_tokens });

    const client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
    const messages = about(video) as unknown as OpenAI.ChatCompletionMessageParam[];
    const options = { model: "fovea-shapes", messages, temperature: 0, max_tokens: 8 };
    const completion = await client.chat.completions.create(options);
    expect(completion.choices[0]?.message.content).toBe(content);
    const input = [
      {
        role: "user" as const,
        content: [
          { type: "input_video", video_url: video.video_url.url },
          { type: "input_text", text: question.text },
        ],
      },
    ] as unknown as OpenAI.Responses.ResponseInput;
    const response = await client.responses.create({
      model: "fovea-shapes",
      input,
      temperature: 0,
      max_output_tokens: 8,
    });
    expect(response.output_text).toBe(content);
  });

  test("that have been sent are all shown, whatever the default number", async () => {
    const [first, second] = pictures;
    const { body: two } = await ask(about(first!, second!));
    const { body } = await ask(about(videoOf(frames[0]!, frames[1]!)), { media_io_kwargs: { video: { fps: 2 } } });
    expect(body).toMatchObject({ choices: two.choices, usage: { prompt_tokens: two.usage?.prompt_tokens } });
  });

  test.for<[string, () => Promise<readonly object[]>, string, string, RegExp]>([
    [
      "more videos than allowed",
      async () => about(videoOf(frames[0]!), videoOf(frames[1]!), videoOf(frames[2]!)),
      "messages",
      "too_many_videos",
      /3 videos; .* 2, .*LIMIT_MM_PER_PROMPT sets the limit/,
    ],
    [
      "more frames than allowed",
      async () => about(videoOf(...frames, frames[0]!)),
      "messages[0].content[0].video_url",
      "video_too_large",
      /more frames than the limit of 4\. MAX_VIDEO_FRAMES sets the limit\.$/,
    ],
    [
      "frames of several sizes",
      async () => about(pictures[0]!, videoOf(frames[0]!, await frameOf("#000", 20))),
      "messages[0].content[1].video_url",
      "invalid_video",
      /^Frame 1 of the video has 20 x 40 pixels/,
    ],
    [
      "a frame with too many bytes",
      async () => about({ type: "video_url", video_url: { url: `data:video/mp4;base64,${"AAAA".repeat(2000)}` } }),
      "messages[0].content[0].video_url",
      "video_too_large",
      /6000 bytes; the limit is 4096\. MAX_VIDEO_BYTES sets the limit\.$/,
    ],
  ])("are rejected: %s", async ([, messages, param, code, message]) => {
    const { status, body } = await ask(await messages());
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param, code, message: expect.stringMatching(message) });
  });
});

describe("a file", () => {
  const clip = (name: string): Promise<Buffer> => readFile(new URL(`../fixtures/videos/${name}`, import.meta.url));
  const inline = async (name: string, type = "video/mp4") => ({
    type: "video_url",
    video_url: { url: `data:${type};base64,${(await clip(name)).toString("base64")}` },
  });
  const linked = (url: string) => ({ type: "video_url", video_url: { url } });

  let servers: MediaServers;
  let service: RunningService;
  let host: string;

  beforeAll(async () => {
    const place = { path: "/clip.webm", bucket: "clips", key: "a/clip.webm" };
    servers = await startMediaServers(await clip("vp9-alt-ref.webm"), place);
    ({ host } = servers);
    service = await startService({ ...servers.environment, MAX_VIDEO_FRAMES: "6", VIDEO_NUM_FRAMES: "3" });
  });
  afterAll(async () => {
    await service[Symbol.asyncDispose]();
    await servers.stop();
  });

  async function ask(
    part: object,
    fields: object = {},
    { baseUrl } = service,
  ): Promise<{ readonly status: number; readonly body: Answer }> {
    const response = await fetch(`${baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages: about(part), temperature: 0, max_tokens: 8, ...fields }),
    });
    return { status: response.status, body: (await response.json()) as Answer };
  }

  /** Tokens of a frame, in every picture of this model. */
  const TOKENS_PER_FRAME = 64;

  test("is the same by data URL, over http and from S3", async () => {
    const { body: expected } = await ask(await inline("vp9-alt-ref.webm", "video/webm"));
    expect(expected.choices?.[0]?.message.content).toEqual(expect.any(String));
    for (const url of [`http://${host}/clip.webm`, "s3://clips/a/clip.webm"]) {
      const { body } = await ask(linked(url));
      expect(body).toMatchObject({
        choices: expected.choices,
        usage: { prompt_tokens: expected.usage!.prompt_tokens },
      });
    }
  });

  test.for<[object, number]>([
    [{}, 3],
    [{ media_io_kwargs: { video: { num_frames: 5 } } }, 5],
    [{ media_io_kwargs: { video: { num_frames: 500 } } }, 6],
    [{ media_io_kwargs: { video: { num_frames: -1 } } }, 6],
    [{ media_io_kwargs: { video: { fps: 2 } } }, 4],
    [{ mm_processor_kwargs: { fps: 0.5 } }, 1],
    [{ mm_processor_kwargs: { videos_kwargs: { fps: 1000 } } }, 6],
  ])("of two seconds with %j shows %i frames", async ([fields, numFrames]) => {
    const { body } = await ask(await inline("h264-b-frames.mp4"), { ...fields, max_tokens: 1 });
    expect(body.usage?.prompt_tokens_details.multimodal_tokens).toEqual({
      image: 0,
      video: numFrames * TOKENS_PER_FRAME,
    });
  });

  test("and a picture are counted and rendered by their modality", async () => {
    const metricOf = async (name: string): Promise<number> => {
      const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
      return Number(new RegExp(`^${name}\\S* (\\d+)$`, "m").exec(text)?.[1]);
    };
    const names = ["fovea_image_tokens_total", "fovea_video_tokens_total"];
    const before = await Promise.all(names.map(metricOf));
    const messages = about(pictures[0]!, await inline("h264-b-frames.mp4"), pictures[1]!);
    const send = async (path: string): Promise<Answer> => {
      const body = JSON.stringify({ messages, max_tokens: 1 });
      const headers = { "content-type": "application/json" };
      return (await fetch(`${service.baseUrl}${path}`, { method: "POST", headers, body })).json() as Promise<Answer>;
    };
    const { usage } = await send("/v1/chat/completions");
    const counts = { image: 2 * TOKENS_PER_FRAME, video: 3 * TOKENS_PER_FRAME };
    expect(usage?.prompt_tokens_details.multimodal_tokens).toEqual(counts);
    const after = await Promise.all(names.map(metricOf));
    expect(after.map((value, index) => value - before[index]!)).toEqual([counts.image, counts.video]);

    const { features } = await send("/v1/chat/completions/render");
    const { image, video } = features!.mm_placeholders;
    expect([image, video].map((ranges) => ranges.length)).toEqual([2, 3]);
    const order = [image[0]!, ...video, image[1]!].map(({ offset }) => offset);
    expect(order).toEqual(order.toSorted((first, second) => first - second));
    expect(features!.mm_hashes.image).toHaveLength(2);
    expect(new Set(features!.mm_hashes.video).size).toBe(3);
  });

  test.for<[string, () => Promise<object>, number, string, RegExp]>([
    ["bytes of something else", async () => linked("data:video/mp4;base64,AAAA"), 400, "invalid_video", /video/],
    ["sound alone", () => inline("audio-only.mp4"), 400, "invalid_video", /video/],
    [
      "an address without a file",
      async () => linked(`http://${host}/gone.mp4`),
      422,
      "image_unreachable",
      /^The video/,
    ],
    ["a key without an object", async () => linked("s3://clips/none.mp4"), 422, "image_unreachable", /^The video/],
    [
      "an address of a private network",
      async () => linked("http://127.0.0.1:1/a.mp4"),
      400,
      "invalid_image_reference",
      /^The video's host .*ALLOWED_PRIVATE_HOSTS lists/,
    ],
  ])("is rejected: %s", async ([, part, status, code, message]) => {
    const { body, ...answer } = await ask(await part());
    expect(answer.status).toBe(status);
    expect(body.error).toMatchObject({
      code,
      param: "messages[0].content[0].video_url",
      message: expect.stringMatching(message),
    });
  });

  test("that does not arrive in time is rejected", async () => {
    await using impatient = await startService({
      ALLOW_HTTP_IMAGES: "true",
      ALLOWED_PRIVATE_HOSTS: host,
      VIDEO_FETCH_TIMEOUT_SECONDS: "0.1",
      IMAGE_FETCH_TIMEOUT_SECONDS: "600",
    });
    const { status, body } = await ask(linked(`http://${host}/never.mp4`), {}, impatient);
    expect(status).toBe(422);
    expect(body.error).toMatchObject({
      code: "image_unreachable",
      message: expect.stringMatching(/^The video .* did not arrive within 100 ms\. VIDEO_FETCH_TIMEOUT_SECONDS sets/),
    });
  });
});

describe("without images", () => {
  async function answerOf(limits: string, ...parts: readonly object[]): Promise<{ status: number; body: Answer }> {
    await using service = await startService({ LIMIT_MM_PER_PROMPT: limits });
    const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages: about(...parts), temperature: 0, max_tokens: 4 }),
    });
    return { status: response.status, body: (await response.json()) as Answer };
  }

  test("a deployment accepts no videos either, if it says nothing of them", async () => {
    const { status, body } = await answerOf('{"image": 0}', videoOf(...frames));
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ code: "too_many_videos", message: expect.stringMatching(/limit is 0/) });
  });

  test("a deployment answers about videos where it accepts them", async () => {
    const { status, body } = await answerOf('{"image": 0, "video": 1}', videoOf(...frames));
    expect(status).toBe(200);
    expect(body.usage!.prompt_tokens_details.multimodal_tokens).toEqual({ image: 0, video: 4 * 64 });
  });
});
