/** Videos in requests, up to the tensors of their frames. */
import sharp from "sharp";
import { describe, expect, test } from "vitest";

import { defaultVideoLimits } from "../../engine/contract/default-limits.ts";
import type { ContentPart, GenerationRequest, Prompt } from "../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../engine/input/input-processor.ts";
import { createGoldenInputs, imageLimits } from "./input/golden-inputs.ts";
import type { GoldenInputs } from "./input/golden-inputs.ts";
import { readVideo } from "./videos/videos.ts";

const never = new AbortController().signal;

type Extras = Omit<GenerationRequest, "requestId" | "prompt" | "samplingParams">;

function process(inputs: GoldenInputs, prompt: Prompt, extras: Extras = {}): Promise<ProcessedPrompt> {
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams(), ...extras };
  return inputs.inputProcessor.process(request, never);
}

function userSays(...content: readonly ContentPart[]): Prompt {
  return { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true };
}

const question = { type: "text", text: "what happens?" } as const;

/** A JPEG of one colour, in base64. */
async function frameOf(background: string, width = 40): Promise<string> {
  const picture = sharp({ create: { width, height: 30, channels: 3, background } });
  return (await picture.jpeg().toBuffer()).toString("base64");
}

const frames = await Promise.all(["#c03020", "#20c030", "#3020c0"].map((colour) => frameOf(colour)));
const narrow = await frameOf("#000", 20);
const sequenceOf = (parts: readonly string[]): ContentPart => ({
  type: "video",
  reference: `data:video/jpeg;base64,${parts.join(",")}`,
});
const sequence = sequenceOf(frames);
const pictures = frames.map((frame): ContentPart => ({ type: "image", reference: `data:image/jpeg;base64,${frame}` }));

describe("frames sent one after the other", () => {
  test("are the pictures of their message, for a model that knows only pictures", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const ofVideo = await process(inputs, userSays(sequence, question));
    const ofPictures = await process(inputs, userSays(...pictures, question));
    expect(ofVideo.promptTokenIds).toEqual(ofPictures.promptTokenIds);
    const withoutHash = ({ images }: ProcessedPrompt) =>
      images.map(({ tensors, placeholder }) => ({ tensors, placeholder }));
    expect(withoutHash(ofVideo)).toEqual(withoutHash(ofPictures));
    const hashes = [...ofVideo.images, ...ofPictures.images].map(({ mmHash }) => mmHash);
    expect(new Set(hashes).size).toBe(6);
  });

  test("may be a list of references", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const references = frames.map((frame) => `data:image/jpeg;base64,${frame}`);
    const ofList = await process(inputs, userSays({ type: "video", reference: references }, question));
    expect(ofList).toEqual(await process(inputs, userSays(sequence, question)));
    await expect(process(inputs, userSays({ type: "video", reference: [] }, question))).rejects.toMatchObject({
      code: "invalid_video",
      message: "The video has no frames.",
    });
  });

  test("stand among the pictures of the message in its order", async () => {
    const more = { ...imageLimits, maxImagesPerPrompt: 5 };
    await using inputs = await createGoldenInputs("llava-default", {
      imageLimits: more,
      settings: { imageLimits: more },
    });
    const [first, second] = pictures;
    const mixed = await process(inputs, userSays(first!, sequence, question, second!));
    const apart = await process(inputs, userSays(first!, ...pictures, question, second!));
    expect(mixed.promptTokenIds).toEqual(apart.promptTokenIds);
    expect(mixed.images.map(({ tensors }) => tensors)).toEqual(apart.images.map(({ tensors }) => tensors));
  });

  test.for([
    ["of several sizes", [frames[0]!, narrow], "invalid_video", /^Frame 1 of the video has 20 x 30 /],
    ["that are no pictures", [frames[0]!, "AAAA"], "invalid_image", /^The 3 bytes are not a picture/],
    ["without bytes", [frames[0]!, ""], "invalid_image_reference", /has no data after its comma/],
  ] as const)("%s are rejected", async ([, parts, code, message]) => {
    await using inputs = await createGoldenInputs("llava-default");
    await expect(process(inputs, userSays(sequenceOf(parts), question))).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
      parameter: "prompt.videos[0]",
    });
  });

  test("above the limit are rejected, and name the setting", async () => {
    const videoLimits = { ...defaultVideoLimits, maxVideoFrames: 2 };
    await using inputs = await createGoldenInputs("llava-default", { settings: { videoLimits } });
    await expect(process(inputs, userSays(sequence, question))).rejects.toMatchObject({
      code: "video_too_large",
      setting: "maxVideoFrames",
      parameter: "prompt.videos[0]",
    });
  });
});

test("more videos than allowed are rejected, and so is one outside of a conversation", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  await expect(process(inputs, userSays(sequence, sequence, question))).rejects.toMatchObject({
    code: "too_many_videos",
    message: "The prompt has 2 videos; the limit is 1, set by the server.",
    setting: "maxVideosPerPrompt",
  });
  const parts = { kind: "parts", parts: [sequence, question], addSpecialTokens: false } as const;
  await expect(process(inputs, parts)).rejects.toMatchObject({
    code: "invalid_argument",
    message: "Only conversations can have videos.",
  });
});

test("a video whose frames do not fit into the prompt is rejected before they are decoded", async () => {
  await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 40 });
  await expect(process(inputs, userSays(sequence, question))).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(/ It shows 3 frames of videos; ask for fewer\.$/),
  });
});

test("frames that do not fit are fewer by default, and rejected if the request chose them", async () => {
  await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 40 });
  const reference = `data:video/mp4;base64,${readVideo("h264-b-frames.mp4").toString("base64")}`;
  const prompt = userSays({ type: "video", reference }, question);
  const sampling = { numFrames: 12 };
  const shown = await process(inputs, prompt, { videoSampling: {}, defaultVideoSampling: sampling });
  expect(shown.images.length).toBeGreaterThan(0);
  expect(shown.images.length).toBeLessThan(12);
  await expect(process(inputs, prompt, { videoSampling: sampling })).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(/ It shows 12 frames of videos; ask for fewer\.$/),
  });
  await using longer = await createGoldenInputs("llava-default", { maxModelLen: 400 });
  expect((await process(longer, prompt, { defaultVideoSampling: sampling })).images).toHaveLength(12);
  const ofRequest = { videoSampling: { numFrames: 3 }, defaultVideoSampling: sampling };
  expect((await process(longer, prompt, ofRequest)).images).toHaveLength(3);
});
