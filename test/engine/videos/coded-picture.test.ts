import { expect, test } from "vitest";

import { pictureReaderOf } from "../../../engine/videos/coded-picture.ts";
import type { CodedPicture } from "../../../engine/videos/coded-picture.ts";

const plain = {
  isShown: true,
  isStart: false,
  isLeading: false,
  opensGroup: false,
  isReferred: true,
  isSecondField: false,
};
/** Units of H.264 and HEVC with start codes, and with lengths of four bytes as the headers of MP4 announce them. */
const startCodes = (...units: number[][]): number[] => units.flatMap((unit) => [[0, 0, 1], unit].flat());
const lengths = (...units: number[][]): number[] => units.flatMap((unit) => [[0, 0, 0, unit.length], unit].flat());
const avcHeader = Uint8Array.of(1, 100, 0, 30, 0xff);
const hevcHeader = new Uint8Array(23).fill(3, 21).fill(1, 0, 1);

type Case = readonly [
  name: string,
  decoder: string,
  bytes: readonly number[],
  isKey: boolean,
  expected: Partial<CodedPicture>,
  extradata?: Uint8Array,
];

test.for<Case>([
  [
    "an IDR picture behind its parameters",
    "h264",
    startCodes([0x67, 9], [0x68, 9], [0x65, 9]),
    true,
    { isStart: true },
  ],
  ["an IDR picture in MP4", "h264", lengths([0x06, 9, 9], [0x65, 9]), true, { isStart: true }, avcHeader],
  ["a key picture that is no IDR picture", "h264", startCodes([0x06, 9], [0x41, 9]), true, { opensGroup: true }],
  ["a picture that others refer to", "h264", lengths([0x41, 9]), false, {}, avcHeader],
  ["a picture that no other refers to", "h264", lengths([0x06, 9], [0x01, 9]), false, { isReferred: false }, avcHeader],
  [
    "a unit that claims to be longer than its packet",
    "h264",
    [0, 0, 255, 255, 6],
    true,
    { opensGroup: true },
    avcHeader,
  ],
  ["a clean random access picture", "hevc", startCodes([21 << 1, 1]), true, { isStart: true }],
  ["a skipped leading picture", "hevc", lengths([8 << 1, 1]), false, { isLeading: true }, hevcHeader],
  ["a decodable leading picture", "hevc", startCodes([6 << 1, 1]), false, {}],
  ["a key frame", "vp8", [0x10], true, { isStart: true }],
  ["an alternative reference frame", "vp8", [0x01], false, { isShown: false }],
  ["a shown frame", "vp9", [0b1000_0110, 0, 0], false, {}],
  ["a hidden frame", "vp9", [0b1000_0100, 0, 0], false, { isShown: false }],
  ["a frame that is shown again", "vp9", [0b1000_1000, 0], false, {}],
  ["a hidden frame and a shown one together", "vp9", [0b1000_0100, 0, 0b1100_0001], false, {}],
  ["a hidden frame of profile 3", "vp9", [0b1011_0010, 0, 0], false, { isShown: false }],
  ["a closed group", "mpeg2video", startCodes([0xb3, 9], [0xb8, 0, 0, 0, 0x40], [0]), true, { isStart: true }],
  ["an open group", "mpeg2video", startCodes([0xb8, 0, 0, 0, 0], [0]), true, { isStart: true, opensGroup: true }],
  ["any key picture of other codecs", "mjpeg", [], true, { isStart: true }],
  ["no picture", "h264", [], false, {}],
])("reads %s", ([, decoder, bytes, isKey, expected, extradata]) => {
  const read = pictureReaderOf(decoder, extradata ?? null);
  expect(read(Uint8Array.from(bytes), isKey)).toEqual({ ...plain, ...expected });
});
