import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { array, assert, asyncProperty, constantFrom, nat, noBias, tuple } from "fast-check";
import { afterAll, expect, test } from "vitest";

import type { EngineError } from "../../../engine/contract/errors.ts";
import { createVideoDecoder } from "../../../engine/videos/video-decoder.ts";
import type { VideoDecoder } from "../../../engine/videos/video-decoder.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { claimSamples, gifOfSize, referTo } from "./hostile-videos.ts";
import { decodeAll, hashOf, never, readVideo, recordedVideos, upTo } from "./videos.ts";

const decoder = createVideoDecoder();
afterAll(() => decoder.close());

const codeOf = (video: Promise<unknown>): Promise<string> =>
  video.then(
    () => "decoded",
    (error: EngineError) => error.code,
  );

async function expectToServe(serving: VideoDecoder): Promise<void> {
  const frames = await decodeAll(serving, readVideo("h264-b-frames.mp4"));
  expect(frames.map(hashOf)).toEqual(recordedVideos["h264-b-frames.mp4"]!.hashes);
}

test("containers that name other files and addresses reach neither", async () => {
  await using folder = await createTemporaryFolder();
  const target = join(folder.path, "target.mp4");
  await writeFile(target, readVideo("h264-b-frames.mp4"));
  let numRequests = 0;
  const server = createServer((_, response) => {
    numRequests++;
    response.end(readVideo("h264-interlaced.mpegts"));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/segment.ts`;
  const files = [address, `file://${target}`, target].flatMap((reference) => [
    `#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n${reference}\n#EXT-X-ENDLIST\n`,
    `ffconcat version 1.0\nfile '${reference}'\n`,
    `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT2S"><Period><AdaptationSet mimeType="video/mp4"><Representation id="1" bandwidth="1"><BaseURL>${reference}</BaseURL></Representation></AdaptationSet></Period></MPD>`,
  ]);
  for (const text of files) {
    expect(await codeOf(decoder.readFacts({ bytes: Buffer.from(text) }, never))).toBe("invalid_video");
  }
  server.close();
  expect(numRequests).toBe(0);
});

test("a track in another file shows no frame of it", async () => {
  await using folder = await createTemporaryFolder();
  const target = join(folder.path, "target.mp4");
  await writeFile(target, readVideo("h264-b-frames.mp4"));
  const bytes = referTo(target, readVideo("h264-b-frames.mp4"));
  expect(await codeOf(decoder.decodeFrames({ bytes }, upTo(20), never))).toBe("invalid_video");
});

test("a table of a billion samples ends its own video", async () => {
  for (const size of [0, 1, 1_000_000]) {
    const bytes = claimSamples(readVideo("h264-b-frames.mp4"), 1_000_000_000, size);
    expect(await codeOf(decoder.readFacts({ bytes }, never))).toMatch(/^(?:invalid_video|video_too_large)$/);
  }
  await expectToServe(decoder);
});

test("a size that the header claims is rejected before a frame is decoded", async () => {
  const bytes = gifOfSize(readVideo("paletted.gif"), 65_535, 65_535);
  await expect(decoder.readFacts({ bytes }, never)).rejects.toMatchObject({
    code: "video_too_large",
    message: "The video has 65535x65535 = 4294836225 pixels; the limit is 16777216.",
  });
});

test("a video that needs too much memory ends its own process", async () => {
  const small = createVideoDecoder({ maxProcessBytes: 160 * 1024 ** 2 });
  try {
    expect(await codeOf(small.decodeFrames({ bytes: readVideo("large.mp4") }, upTo(5), never))).toBe("invalid_video");
    await expectToServe(small);
  } finally {
    await small.close();
  }
});

test.for(["h264-b-frames.mp4", "h264-open-gop.mkv", "mpeg4-b-frames.avi", "late-start.mpegts", "paletted.gif"])(
  "decodes the frames before the end of a cut %s, or rejects it",
  async (name) => {
    const whole = readVideo(name);
    for (const share of [0.02, 0.3, 0.6, 0.95]) {
      const bytes = whole.subarray(0, Math.floor(whole.length * share));
      expect(await codeOf(decodeAll(decoder, bytes))).toMatch(/^(?:decoded|invalid_video)$/);
    }
    await expectToServe(decoder);
  },
);

test("a broken frame is replaced by the nearest one that decodes", async () => {
  const bytes = readVideo("mjpeg.avi");
  const { hashes } = recordedVideos["mjpeg.avi"]!;
  // Each picture of Motion JPEG stands alone. Without its header, the fifth is none.
  const fifth = [...bytes.toString("latin1").matchAll(/\xff\xd8\xff/g)][4]!.index;
  bytes.fill(0, fifth, fifth + 400);
  const frames = await decodeAll(decoder, bytes);
  expect(frames.map(({ index }) => index)).toEqual(upTo(10));
  expect(frames.map(hashOf)).toEqual(hashes.with(4, hashes[3]!));
});

/** Without a bias towards the beginning, where a change rarely leaves anything to decode. */
const anywhere = noBias(nat(2 ** 31 - 1));

test("bytes that are changed at random never end the service", async () => {
  const names = [...Object.keys(recordedVideos), "animated.webp"];
  await assert(
    asyncProperty(
      constantFrom(...names),
      array(tuple(anywhere, nat(255)), {
        minLength: 1,
        maxLength: 60,
      }),
      async (name, changes) => {
        const bytes = readVideo(name);
        for (const [place, value] of changes) bytes[place % bytes.length] = value;
        expect(await codeOf(decodeAll(decoder, bytes))).toMatch(/^(?:decoded|invalid_video|video_too_large)$/);
      },
    ),
    { numRuns: 40 },
  );
  await expectToServe(decoder);
});
