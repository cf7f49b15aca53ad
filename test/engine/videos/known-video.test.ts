import { expect, test } from "vitest";

import { knownVideoCodec, knownVideoKey } from "../../../engine/videos/known-video.ts";

const known = {
  validator: '"etag"',
  contentHash: "ab".repeat(32),
  facts: { width: 48, height: 40, frameTimes: Float64Array.of(0, 0.04, 1 / 3), durationSeconds: 0.5, fps: 6 },
};

test("what is known of a video survives the cache, wherever its bytes begin", () => {
  for (const validator of [known.validator, null]) {
    const encoded = knownVideoCodec.encode("key", { ...known, validator });
    const shifted = new Uint8Array(encoded.length + 8);
    for (const offset of [0, 8]) {
      shifted.set(encoded, offset);
      const decoded = knownVideoCodec.decode("key", shifted.subarray(offset, offset + encoded.length));
      expect(decoded).toEqual({ ...known, validator });
    }
  }
});

test("bytes of another key, and altered ones, are a miss", () => {
  const encoded = knownVideoCodec.encode("key", known);
  expect(knownVideoCodec.decode("other", encoded)).toBeNull();
  encoded[encoded.length - 1]! ^= 1;
  expect(knownVideoCodec.decode("key", encoded)).toBeNull();
});

test("the times of frames count as memory", () => {
  const longer = { ...known, facts: { ...known.facts, frameTimes: new Float64Array(1003) } };
  expect(knownVideoCodec.byteLengthOf(longer) - knownVideoCodec.byteLengthOf(known)).toBe(8000);
});

test("keys differ between tenants, and between a reference and a name", () => {
  const keys = [
    knownVideoKey({ reference: "a" }, "tenant"),
    knownVideoKey({ reference: "a" }, "other"),
    knownVideoKey({ uuid: "a" }, "tenant"),
    knownVideoKey({ reference: "b" }, "tenant"),
  ];
  expect(new Set(keys).size).toBe(keys.length);
});
