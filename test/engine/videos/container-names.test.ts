import { expect, test } from "vitest";

import { foreignContainerOf } from "../../../engine/videos/container-names.ts";
import { readVideo } from "./videos.ts";

test.for<[string, string]>([
  ["FLV\x01\x05\0\0\0\x09", "an FLV file"],
  ["\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9", "a WMV or another ASF file"],
  ["OggS\0\x02", "an Ogg file"],
  ["\0\0\x01\xba\x44", "an MPEG program stream"],
  [".RMF\0\0\0\x12", "a RealMedia file"],
  ["\x89PNG\r\n\x1a\n", "a PNG or APNG file"],
  ["\xff\xd8\xff\xe0", "a JPEG file"],
  ["RIFF\x24\n\0\0WEBPVP8 ", "a WebP file without animation"],
  ["#EXTM3U\n#EXT-X-VERSION:3\n", "an HLS playlist"],
  ["\n<!DOCTYPE html><html>", "an HTML page"],
])("%j begins %s", ([start, name]) => {
  expect(foreignContainerOf(Buffer.from(start, "latin1"))).toBe(name);
});

test.for([
  "h264-b-frames.mp4",
  "hevc-open-gop.mov",
  "vp9-alt-ref.webm",
  "mjpeg.avi",
  "late-start.mpegts",
  "paletted.gif",
])("%s is none of those", (name) => {
  expect(foreignContainerOf(readVideo(name))).toBeNull();
  expect(foreignContainerOf(new Uint8Array())).toBeNull();
});
