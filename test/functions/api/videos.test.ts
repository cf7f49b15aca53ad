/** Videos in requests: the forms of their parts, the sampling of their frames, and the paths of errors about them. */
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { ChatPromptInput, VideoSampling } from "../../../engine/index.ts";
import { prepareLine } from "../../../functions/batch/answer-line.ts";
import { parseBatchLine } from "../../../functions/batch/batch-line.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import { asked, errorOf, requestOf } from "../../support/service/media-requests.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const file = "data:video/mp4;base64,AAAA";
const part = { type: "video_url", video_url: { url: file } };

describe("a part", () => {
  test.for<[object, string]>([
    [part, file],
    [{ type: "video_url", video_url: "https://example.com/a.mp4" }, "https://example.com/a.mp4"],
    [{ video_url: { url: "s3://bucket/a.mp4" } }, "s3://bucket/a.mp4"],
    [{ video_url: file }, file],
    [{ ...part, uuid: "a" }, file],
    [{ type: "input_video", video_url: file }, file],
    [{ type: "input_video", video_url: { url: file } }, file],
    [{ type: "video", video: file, max_pixels: 1000 }, file],
    [{ video: file }, file],
    [{ video_url: "data:video/jpeg;base64,AAAA,BBBB" }, "data:video/jpeg;base64,AAAA,BBBB"],
  ])("%j is a video", async ([given, reference]) => {
    const request = await requestOf(asked(given, "What is this?"));
    expect(request?.prompt).toMatchObject({
      messages: [
        {
          role: "user",
          content: [
            { type: "video", reference },
            { type: "text", text: "What is this?" },
          ],
        },
      ],
    });
  });

  test.for<[object, object]>([
    [
      { ...part, uuid: "a" },
      { type: "video", reference: file, uuid: "a" },
    ],
    [
      { ...part, uuid: null },
      { type: "video", reference: file },
    ],
    [
      { type: "video_url", uuid: "a" },
      { type: "video", reference: null, uuid: "a" },
    ],
    [
      { type: "input_video", video_url: null, uuid: "a" },
      { type: "video", reference: null, uuid: "a" },
    ],
    [
      { type: "video", video: null, uuid: "a" },
      { type: "video", reference: null, uuid: "a" },
    ],
  ])("%j may have a name", async ([given, expected]) => {
    const request = await requestOf(asked(given));
    const prompt = request?.prompt as ChatPromptInput | undefined;
    expect(prompt?.messages[0]?.content).toEqual([expected]);
  });

  test("may be a list of frames", async () => {
    const request = await requestOf(asked({ type: "video", video: [file, file] }));
    expect(request?.prompt).toMatchObject({ messages: [{ content: [{ type: "video", reference: [file, file] }] }] });
  });

  test("of a response is a video", async () => {
    const body = { input: [{ role: "user", content: [{ type: "input_video", video_url: file }] }] };
    const request = await requestOf(body, "/v1/responses");
    expect(request?.prompt).toMatchObject({ messages: [{ content: [{ type: "video", reference: file }] }] });
  });

  test.for<[object, string, RegExp]>([
    [{ type: "video_url" }, "video_url", /must be an object: .*; null is allowed only with a uuid/],
    [{ type: "input_video", video_url: null, uuid: null }, "video_url", /null is allowed only with a uuid/],
    [{ type: "video", video: null }, "video", /must be a string: .*; null is allowed only with a uuid/],
    [{ type: "video_url", video_url: {} }, "video_url.url", /must be a string/],
    [{ ...part, uuid: 5 }, "uuid", /must be a string/],
    [{ ...part, fps: "2" }, "fps", /must be a number/],
    [{ type: "video", video: [] }, "video", /at least one frame/],
    [{ type: "video", video: [file, 5] }, "video[1]", /must be a string: a reference to a frame/],
    [{ type: "video", video: {} }, "video", /must be a string: .*; or a list of references to its frames/],
  ])("%j is rejected", async ([given, field, message]) => {
    const error = await errorOf(asked("a", given));
    expect(error.param).toBe(`messages[0].content[1].${field}`);
    expect(error.message).toMatch(message);
  });

  test("of a completion or of a message is rejected by its type", async () => {
    expect(await errorOf({ prompt: "a", images: [part] }, "/v1/completions")).toMatchObject({ param: "images[0]" });
    const message = { max_tokens: 1, ...asked({ type: "video", source: { type: "url", url: file } }) };
    const { post } = createTestApp();
    const response = await post("/v1/messages", message);
    expect(await response.json()).toMatchObject({
      error: { message: expect.stringMatching(/^messages\[0\]\.content\[0\]\.type .*got "video"/) },
    });
  });
});

describe("the sampling", () => {
  const media = (video: unknown): object => ({ media_io_kwargs: { video } });
  const processor = (options: object): object => ({ mm_processor_kwargs: options });

  test.for<[object, VideoSampling | undefined]>([
    [{}, undefined],
    [media(null), undefined],
    [media({}), undefined],
    [media({ num_frames: 12 }), { numFrames: 12 }],
    [media({ fps: 0.5 }), { framesPerSecond: 0.5 }],
    [media({ num_frames: null, fps: 2 }), { framesPerSecond: 2 }],
    [media({ num_frames: -1, fps: 2 }), { framesPerSecond: 2 }],
    [media({ num_frames: 12, fps: -1 }), { numFrames: 12 }],
    [media({ fps: -1 }), undefined],
    [processor({ num_frames: 6 }), { numFrames: 6 }],
    [processor({ fps: 2, do_sample_frames: true }), { framesPerSecond: 2 }],
    [processor({ videos_kwargs: { fps: 2, do_sample_frames: true } }), { framesPerSecond: 2 }],
    [{ ...media({ fps: 2 }), ...processor({ fps: 2, do_sample_frames: false }) }, { framesPerSecond: 2 }],
  ])("of %j is %j", async ([fields, sampling]) => {
    const request = await requestOf({ ...asked(part), ...fields });
    expect(request?.videoSampling).toEqual(sampling);
  });

  test("of all frames ends at the server's limit", async () => {
    const body = { ...asked(part), ...media({ num_frames: -1 }) };
    expect((await requestOf(body))?.videoSampling).toEqual({ numFrames: 32 });
  });

  test("of parts is that of the request", async () => {
    const body = asked({ ...part, fps: 3 }, { video: file, fps: 3 });
    expect((await requestOf(body))?.videoSampling).toEqual({ framesPerSecond: 3 });
  });

  test("of responses is in the same fields", async () => {
    const body = { input: "a", ...media({ num_frames: 5 }) };
    expect((await requestOf(body, "/v1/responses"))?.videoSampling).toEqual({ numFrames: 5 });
  });

  test("leaves the options of the image processor alone", async () => {
    const body = { ...asked(part), ...processor({ fps: 2, videos_kwargs: {}, do_resize: false }) };
    expect((await requestOf(body))?.mmProcessorOptions).toEqual({ do_resize: false });
  });

  test("of the deployment is replaced as a whole by the request's", async () => {
    const config = { videoSampling: { numFrames: 4 } };
    const path = "/v1/chat/completions";
    const byDefault = await requestOf(asked(part), path, config);
    expect(byDefault).toMatchObject({ defaultVideoSampling: { numFrames: 4 } });
    expect(byDefault).not.toHaveProperty("videoSampling");
    const chosen = await requestOf({ ...asked(part), ...media({ fps: 2 }) }, path, config);
    expect(chosen).toMatchObject({ videoSampling: { framesPerSecond: 2 } });
    expect(chosen).not.toHaveProperty("defaultVideoSampling");
  });

  test.for<[object, string, RegExp]>([
    [
      media({ num_frames: 0 }),
      "media_io_kwargs.video.num_frames",
      /a whole number of at least 1, or -1 for all frames/,
    ],
    [media({ num_frames: 2.5 }), "media_io_kwargs.video.num_frames", /a whole number/],
    [media({ num_frames: "8" }), "media_io_kwargs.video.num_frames", /a whole number/],
    [media({ fps: 0 }), "media_io_kwargs.video.fps", /a number above 0/],
    [media({ fps: -2 }), "media_io_kwargs.video.fps", /a number above 0/],
    [media(8), "media_io_kwargs.video", /must be an object/],
    [media({ max_frames: 3 }), "media_io_kwargs.video.max_frames", /that can be set are num_frames and fps/],
    [processor({ num_frames: 0 }), "mm_processor_kwargs.num_frames", /a whole number/],
    [processor({ videos_kwargs: [1] }), "mm_processor_kwargs.videos_kwargs", /must be an object/],
    [
      processor({ videos_kwargs: { size: {} } }),
      "mm_processor_kwargs.videos_kwargs.size",
      /cannot be set; the options of videos that can be set are num_frames and fps/,
    ],
    [
      media({ num_frames: 8, fps: 2 }),
      "media_io_kwargs.video.fps",
      /^media_io_kwargs\.video\.fps cannot be combined with media_io_kwargs\.video\.num_frames; leave one out/,
    ],
    [
      { ...media({ fps: 2 }), ...processor({ fps: 3 }) },
      "mm_processor_kwargs.fps",
      /is 3 and media_io_kwargs\.video\.fps is 2; all videos of a request have one value/,
    ],
    [
      { messages: [{ role: "user", content: [part, { ...part, fps: 0 }] }] },
      "messages[0].content[1].fps",
      /a number above 0/,
    ],
  ])("%j is rejected", async ([fields, param, message]) => {
    const error = await errorOf({ ...asked(part), ...fields });
    expect(error.param).toBe(param);
    expect(error.message).toMatch(message);
  });
});

describe("an error of the engine", () => {
  const gone = (parameter: string): EngineError => new EngineError("invalid_video", "Bad file.", { parameter });

  test.for<[string, string]>([
    ["prompt.videos[0]", "messages[0].content[2].video_url"],
    ["prompt.videos[1]", "messages[2].content[0].video"],
    ["prompt.videos[2]", "messages"],
    ["prompt.images[0]", "messages[0].content[1].image_url"],
    ["prompt.images[1]", "messages[2].content[1].image_url"],
  ])("about %s names %s", async ([parameter, param]) => {
    const image = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
    const messages = [
      { role: "user", content: ["a", image, part] },
      { role: "assistant", content: "b" },
      { role: "user", content: [{ type: "video", video: file }, image] },
    ];
    const { post } = createTestApp({ script: [gone(parameter)] });
    const response = await post("/v1/chat/completions", { messages });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "invalid_video", param } });
  });

  test("names the part of a response", async () => {
    const { post } = createTestApp({ script: [gone("prompt.videos[0]")] });
    const content = [
      { type: "input_text", text: "a" },
      { type: "input_video", video_url: file },
    ];
    const response = await post("/v1/responses", { input: [{ role: "user", content }] });
    expect(await response.json()).toMatchObject({ error: { param: "input[0].content[1].video_url" } });
  });

  test("names the part of a line of a batch", async () => {
    const { service, engine, bodies, config } = createTestApp({ script: [gone("prompt.videos[0]")] });
    const text = JSON.stringify({
      custom_id: "a",
      method: "POST",
      url: "/v1/chat/completions",
      body: asked("a", part),
    });
    const line = parseBatchLine({ lineNumber: 1, text, problem: null });
    if (line.kind !== "good") throw new Error(line.message);
    const logger = createLogger({ level: "error", write: () => {} });
    const metrics = createMetrics(service, bodies, "tiny");
    const answer = await prepareLine(line, { service, engine, metrics, logger, tenant: "", config }).answer();
    expect(answer).toMatchObject({
      kind: "answered",
      response: {
        statusCode: 400,
        body: { error: { code: "invalid_video", param: "messages[0].content[1].video_url" } },
      },
    });
  });

  test("about the sampling has the names of the request", async () => {
    const parameter = "videoSampling.numFrames";
    const error = new EngineError("invalid_argument", `${parameter} cannot be set.`, { parameter });
    const { post } = createTestApp({ script: [error] });
    const response = await post("/v1/chat/completions", asked(part));
    expect(await response.json()).toMatchObject({
      error: {
        message: "media_io_kwargs.video.num_frames cannot be set.",
        param: "media_io_kwargs.video.num_frames",
      },
    });
  });
});

test("videos are counted in the metrics and in the access log", async () => {
  const { app, post, log } = createTestApp();
  const image = { type: "image_url", image_url: { url: "data:," } };
  await post("/v1/chat/completions", asked(part, image, part));
  await post("/v1/chat/completions", asked("a"));
  const metrics = await (await app.request("/metrics")).text();
  expect(metrics).toMatch(/^fovea_videos_total\{.*\} 2$/m);
  expect(metrics).toMatch(/^fovea_images_total\{.*\} 1$/m);
  const lines = log.filter(({ path }) => path === "/v1/chat/completions");
  expect(lines.map(({ images, videos }) => [images, videos])).toEqual([
    [1, 2],
    [0, undefined],
  ]);
});
