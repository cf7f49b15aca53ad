/** Videos over HTTP with the shipped checkpoint, whose model sees their frames as the pictures of the message. */
import OpenAI from "openai";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly { readonly message: { readonly content: string } }[];
  readonly usage?: { readonly prompt_tokens: number };
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
