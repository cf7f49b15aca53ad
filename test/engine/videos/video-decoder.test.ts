import sharp from "sharp";
import { afterAll, describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { createVideoDecoder } from "../../../engine/videos/video-decoder.ts";
import { decodeAll, hashOf, never, readVideo, recordedVideos, upTo } from "./videos.ts";

const decoder = createVideoDecoder();
afterAll(() => decoder.close());

/** Fovea shows what is transparent on white; `ffmpeg -pix_fmt rgb24` leaves the transparency out. GIFs have white there. */
const isTransparent = (name: string): boolean => name === "transparent.mov";

describe.for(Object.entries(recordedVideos))("%s", ([name, recorded]) => {
  const bytes = readVideo(name);
  const numFrames = recorded.hashes.length;
  const isTurned = /-(90|270)\./.test(name);

  test("has the size, the number of frames and the times that ffprobe finds", async () => {
    const facts = await decoder.readFacts({ bytes }, never);
    const { width, height } = recorded;
    expect([facts.width, facts.height]).toEqual(isTurned ? [height, width] : [width, height]);
    expect(facts.frameTimes).toHaveLength(numFrames);
    const first = recorded.times[0]!;
    // FFmpeg 5 knows no time of the last frame of an AVI with frames out of order.
    const times = recorded.times.map((time, index) => time ?? first + facts.frameTimes[index]!);
    expect([...facts.frameTimes]).toEqual(times.map((time) => expect.closeTo(time - first, 5)));
    expect(facts.fps).toBeCloseTo(numFrames / facts.durationSeconds, 9);
  });

  test("has the frames that ffmpeg decodes", async () => {
    const frames = await decodeAll(decoder, bytes);
    expect(frames.map(({ index }) => index)).toEqual(upTo(numFrames));
    expect(frames.every((frame) => frame.data.length === frame.width * frame.height * 3)).toBe(true);
    const same = frames.filter((frame, index) => hashOf(frame) === recorded.hashes[index]);
    expect(same).toHaveLength(isTransparent(name) ? 0 : numFrames);
  });

  test("has the same frames when it is decoded from its key pictures", async () => {
    const frames = await decodeAll(decoder, bytes);
    for (const index of upTo(numFrames)) {
      const [alone] = await decoder.decodeFrames({ bytes }, [index], never);
      expect(hashOf(alone!)).toBe(hashOf(frames[index]!));
    }
    const chosen = upTo(numFrames).filter((index) => index % 7 === 3 || index % 5 === 4);
    const together = await decoder.decodeFrames({ bytes }, chosen, never);
    expect(together.map(hashOf)).toEqual(chosen.map((index) => hashOf(frames[index]!)));
  });
});

test.for(["transparent.gif", "transparent.mov"])("shows what is transparent in %s on white", async (name) => {
  const [frame] = await decoder.decodeFrames({ bytes: readVideo(name) }, [0], never);
  const rgba = readVideo(`first-of-${name}.rgba`);
  const blended = Uint8Array.from({ length: (rgba.length / 4) * 3 }, (_, index) => {
    const alpha = rgba[Math.floor(index / 3) * 4 + 3]!;
    return Math.round((rgba[Math.floor(index / 3) * 4 + (index % 3)]! * alpha + 255 * (255 - alpha)) / 255);
  });
  expect(rgba.some((_, index) => index % 4 === 3 && rgba[index]! < 255)).toBe(true);
  expect(Buffer.from(blended).equals(frame!.data)).toBe(true);
});

test("an animated WebP has the frames and times that libvips finds, also if they are decoded alone", async () => {
  const bytes = readVideo("animated.webp");
  const { width, height, frameTimes, durationSeconds } = await decoder.readFacts({ bytes }, never);
  const animation = sharp(bytes, { animated: true });
  const { pageHeight, delay = [] } = await animation.metadata();
  const { data, info } = await animation.flatten({ background: "white" }).raw().toBuffer({ resolveWithObject: true });
  expect([width, height, info.channels]).toEqual([info.width, pageHeight, 3]);
  const starts = delay.map((_, index) => delay.slice(0, index).reduce((sum, next) => sum + next / 1000, 0));
  expect([...frameTimes]).toEqual(starts.map((start) => expect.closeTo(start, 9)));
  expect(durationSeconds).toBeCloseTo(starts.at(-1)! + delay.at(-1)! / 1000, 9);
  for (const index of starts.keys()) {
    const page = data.subarray(index * width * height * 3, (index + 1) * width * height * 3);
    const [alone] = await decoder.decodeFrames({ bytes }, [index], never);
    const largest = alone!.data.reduce((most, value, at) => Math.max(most, Math.abs(value - page[at]!)), 0);
    expect(largest).toBeLessThanOrEqual(1);
  }
});

test("frames come in the order of the indices, and equal indices share a frame", async () => {
  const bytes = readVideo("h264-b-frames.mp4");
  const { hashes } = recordedVideos["h264-b-frames.mp4"]!;
  const frames = await decoder.decodeFrames({ bytes }, [12, 3, 12, 0], never);
  expect(frames.map(({ index }) => index)).toEqual([12, 3, 12, 0]);
  expect(frames.map(hashOf)).toEqual([12, 3, 12, 0].map((index) => hashes[index]));
  expect(frames[2]).toBe(frames[0]);
  expect(await decoder.decodeFrames({ bytes }, [], never)).toEqual([]);
});

test("refuses what is no video, and the next video is read", async () => {
  const refused = (bytes: Uint8Array): Promise<unknown> => decoder.readFacts({ bytes }, never).catch((error) => error);
  const unsupported = {
    code: "invalid_video",
    message: expect.stringMatching(/ bytes are not a video in a supported container: MP4, /),
  };
  expect(await refused(new Uint8Array())).toMatchObject(unsupported);
  expect(await refused(Buffer.from("no video at all"))).toMatchObject(unsupported);
  expect(await refused(Buffer.from("FLV"))).toMatchObject({
    code: "invalid_video",
    message:
      "The video is an FLV file. The supported containers are MP4, MOV, 3GP, WebM, Matroska, AVI, MPEG-TS, GIF and animated WebP: convert it to one of them.",
  });
  // Its index is at the end.
  const whole = readVideo("h264-b-frames.mp4");
  expect(await refused(whole.subarray(0, whole.length / 2))).toMatchObject({
    code: "invalid_video",
    message: expect.stringMatching(/^The MP4 or MOV file is incomplete or broken: its index \(moov\)/),
  });
  expect(await refused(readVideo("audio-only.mp4"))).toMatchObject({
    code: "invalid_video",
    message: "The file has no video stream.",
  });
  expect((await decoder.readFacts({ bytes: readVideo("av1.mp4") }, never)).width).toBe(96);
});

test("rejects videos beyond its limits with both numbers", async () => {
  const narrow = createVideoDecoder({ maxVideoPixels: 64 * 48, maxNumFrames: 19, maxFrameBytes: 64 * 48 * 3 * 4 });
  try {
    const reject = (name: string): Promise<unknown> =>
      narrow.readFacts({ bytes: readVideo(name) }, never).catch((error) => error);
    expect(await reject("av1.mp4")).toMatchObject({
      code: "video_too_large",
      message: "The video has 96x64 = 6144 pixels; the limit is 3072.",
    });
    expect(await reject("h264-b-frames.mp4")).toMatchObject({
      code: "video_too_large",
      message: "The video has more than 19 frames.",
    });
    const bytes = readVideo("bt709.mp4");
    expect(await narrow.decodeFrames({ bytes }, [1, 2, 3, 4], never)).toHaveLength(4);
    await expect(narrow.decodeFrames({ bytes }, [1, 2, 3, 4, 5], never)).rejects.toMatchObject({
      code: "video_too_large",
      message: "5 frames of 64x48 pixels have 46080 bytes; the limit is 36864.",
    });
  } finally {
    await narrow.close();
  }
});

test("serves fifty videos at once without mixing them up", async () => {
  const names = Object.keys(recordedVideos).filter((name) => !isTransparent(name));
  const wanted = upTo(50).map((index) => names[index % names.length]!);
  const hashes = await Promise.all(
    wanted.map(async (name, index) => {
      const [frame] = await decoder.decodeFrames({ bytes: readVideo(name) }, [index % 5], never);
      return hashOf(frame!);
    }),
  );
  expect(hashes).toEqual(wanted.map((name, index) => recordedVideos[name]!.hashes[index % 5]));
});

test("abandons an aborted video at once, and the next one is correct", async () => {
  const bytes = readVideo("h264-b-frames.mp4");
  await expect(decoder.readFacts({ bytes }, AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
  const aborting = new AbortController();
  const abandoned = decoder.decodeFrames({ bytes }, upTo(20), aborting.signal);
  aborting.abort();
  await expect(abandoned).rejects.toMatchObject({ code: "aborted" });
  expect((await decodeAll(decoder, bytes)).map(hashOf)).toEqual(recordedVideos["h264-b-frames.mp4"]!.hashes);
});

test("rejects waiting, running and later videos once it is closed", async () => {
  const closing = createVideoDecoder();
  const bytes = readVideo("h264-b-frames.mp4");
  const pending = [0, 1, 2].map(() => closing.decodeFrames({ bytes }, [3], never).catch((error) => error));
  await closing.close();
  for (const outcome of await Promise.all(pending)) expect(outcome).toMatchObject({ code: "closed" });
  await expect(closing.readFacts({ bytes }, never)).rejects.toMatchObject({ code: "closed" });
  await closing.close();
});

test("decodes in as little memory as a small container has for it", async () => {
  const small = createVideoDecoder({ maxProcessBytes: 128 * 2 ** 20 });
  try {
    const frames = await decodeAll(small, readVideo("h264-b-frames.mp4"));
    expect(frames).toHaveLength(recordedVideos["h264-b-frames.mp4"]!.hashes.length);
  } finally {
    await small.close();
  }
});

test("frames of videos whose facts were not read wait like new videos, up to the limit", async () => {
  const busy = createVideoDecoder({ numProcesses: 1, maxNumWaiting: 2 });
  try {
    const bytes = readVideo("h264-b-frames.mp4");
    const outcomes = upTo(6).map((index) =>
      busy.decodeFrames({ bytes, isAdmitted: index < 3 }, [3], never).catch((error: unknown) => error),
    );
    const rejected = (await Promise.all(outcomes)).filter((outcome) => outcome instanceof EngineError);
    expect(rejected.length).toBeGreaterThan(0);
    for (const error of rejected) expect(error).toMatchObject({ code: "queue_full" });
  } finally {
    await busy.close();
  }
});
