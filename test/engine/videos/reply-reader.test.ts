import { expect, test } from "vitest";

import { encodeHeader } from "../../../engine/videos/process-messages.ts";
import { ReplyReader } from "../../../engine/videos/reply-reader.ts";
import { collectFacts, collectFrames } from "../../../engine/videos/result-takers.ts";
import type { VideoReply } from "../../../engine/videos/video-reply.ts";
import { upTo } from "./videos.ts";

const limits = { maxVideoPixels: 100, maxNumFrames: 3, maxFrameBytes: 600, numThreads: 1 };
const refused = { code: "video_too_large", message: "It is too large." } as const;

function bytesOf(reply: VideoReply, payload: Uint8Array = new Uint8Array()): Uint8Array {
  return Buffer.concat([encodeHeader(reply), payload]);
}

function timesOf(...times: number[]): Uint8Array {
  return new Uint8Array(Float64Array.from(times).buffer);
}

const frame = (index: number, width = 2, height = 1): VideoReply => ({ kind: "frame", index, width, height });
const facts = (numFrames: number, width = 10): VideoReply => ({
  kind: "facts",
  width,
  height: 10,
  numFrames,
  durationSeconds: 2,
});

test("puts replies together that arrive in pieces of any size", () => {
  const bytes = Buffer.concat([
    bytesOf({ kind: "started" }),
    bytesOf(frame(5), Uint8Array.of(1, 2, 3, 4, 5, 6)),
    bytesOf(frame(2), Uint8Array.of(6, 5, 4, 3, 2, 1)),
    bytesOf({ kind: "done" }),
  ]);
  for (const size of [1, 2, 3, 7, 64, bytes.length]) {
    const taker = collectFrames([2, 5], limits);
    const reader = new ReplyReader(taker);
    for (const start of upTo(bytes.length).filter((position) => position % size === 0)) {
      reader.read(bytes.subarray(start, start + size));
    }
    expect(taker.result()).toEqual([
      { index: 2, width: 2, height: 1, data: Uint8Array.of(6, 5, 4, 3, 2, 1) },
      { index: 5, width: 2, height: 1, data: Uint8Array.of(1, 2, 3, 4, 5, 6) },
    ]);
  }
});

test("reads facts, and what the process rejects", () => {
  const taker = collectFacts(limits);
  new ReplyReader(taker).read(bytesOf(facts(3), timesOf(0, 0.5, 1)));
  expect(taker.result()).toEqual({
    width: 10,
    height: 10,
    frameTimes: Float64Array.of(0, 0.5, 1),
    durationSeconds: 2,
    fps: 1.5,
  });
  for (const rejected of [collectFacts(limits), collectFrames([1], limits)]) {
    new ReplyReader(rejected).read(bytesOf({ kind: "refused", ...refused }));
    expect(() => rejected.result()).toThrow(expect.objectContaining(refused));
  }
});

test.for<[string, Uint8Array]>([
  ["a frame twice", Buffer.concat([bytesOf(frame(2), new Uint8Array(6)), encodeHeader(frame(2))])],
  ["a frame that was not asked for", encodeHeader(frame(3))],
  ["a frame beyond the limit of pixels", encodeHeader(frame(2, 101, 1))],
  [
    "frames beyond the limit of bytes",
    Buffer.concat([bytesOf(frame(2, 10, 10), new Uint8Array(300)), encodeHeader(frame(5, 10, 11))]),
  ],
  ["facts", encodeHeader(facts(1))],
  ["a header of 4 GB", Uint8Array.of(255, 255, 255, 255)],
  ["an empty header", Uint8Array.of(0, 0, 0, 0)],
  ["no JSON", Uint8Array.of(1, 0, 0, 0, 65)],
  ["a negative width", encodeHeader(frame(2, -1, -1))],
])("rejects %s from a process that decodes frames", ([, bytes]) => {
  expect(() => new ReplyReader(collectFrames([2, 5], limits)).read(bytes)).toThrow(Error);
});

test.for<[string, Uint8Array]>([
  ["more frames than the limit", encodeHeader(facts(4))],
  ["more pixels than the limit", encodeHeader(facts(1, 11))],
  ["times that descend", bytesOf(facts(3), timesOf(0, 2, 1))],
  ["times that are not numbers", bytesOf(facts(2), timesOf(0, Number.NaN))],
  ["a first time other than 0", bytesOf(facts(1), timesOf(1))],
  ["frames", encodeHeader(frame(0))],
])("rejects %s from a process that reads facts", ([, bytes]) => {
  expect(() => new ReplyReader(collectFacts(limits)).read(bytes)).toThrow(Error);
});

test("a video whose frames are not all there is invalid", () => {
  const taker = collectFrames([2, 5], limits);
  new ReplyReader(taker).read(Buffer.concat([bytesOf(frame(2), new Uint8Array(6)), bytesOf({ kind: "done" })]));
  expect(() => taker.result()).toThrow(expect.objectContaining({ code: "invalid_video" }));
});
