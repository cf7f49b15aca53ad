import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { parseImageEmbeddings } from "../../../engine/multimodal/image-embeddings.ts";
import { numpyFile, safetensorsFile } from "./embedding-files.ts";

const limits = { hiddenSize: 4, maxNumEmbeddings: 3 };
const values = [1, 2, 3, 4, 5, 6, 7, 8];

function parse(bytes: Uint8Array) {
  return parseImageEmbeddings({ bytes, parameter: "prompt.images[1]" }, limits);
}

const float32 = Buffer.from(Float32Array.from(values).buffer);
const float16 = Buffer.from(Float16Array.from(values).buffer);
/** The upper halves. */
const bfloat16 = Buffer.from(
  Uint16Array.from(new Uint32Array(Float32Array.from(values).buffer), (w) => w >>> 16).buffer,
);

describe("a file is read", () => {
  test.for([
    ["an .npy file of float32", numpyFile("<f4", [2, 4], float32)],
    ["an .npy file of float16", numpyFile("<f2", [2, 4], float16)],
    ["an .npy file of version 2", numpyFile("<f4", [2, 4], float32, { version: 2 })],
    ["an .npy file with a dimension for the one image", numpyFile("<f4", [1, 2, 4], float32)],
    ["a safetensors file of float32", safetensorsFile("F32", [2, 4], float32)],
    ["a safetensors file of float16", safetensorsFile("F16", [1, 2, 4], float16)],
    ["a safetensors file of bfloat16", safetensorsFile("BF16", [2, 4], bfloat16)],
    ["a safetensors file with metadata", safetensorsFile("F32", [2, 4], float32, { __metadata__: { a: "b" } })],
  ] as const)("%s", ([, bytes]) => {
    const expected = { elementType: "float32", shape: [2, 4], data: Float32Array.from(values) };
    expect(parse(bytes)).toEqual(expected);
    // At any position in memory.
    expect(parse(Buffer.concat([Buffer.alloc(3), bytes]).subarray(3))).toEqual(expected);
  });
});

test.for([
  ["another width", numpyFile("<f4", [4, 2], float32), /2 wide in the shape \[4, 2\]; the model's width is 4/],
  ["too many rows", numpyFile("<f4", [4, 4], Buffer.alloc(64)), /4 rows; an image of this model has 1 to 3/],
  ["no rows", numpyFile("<f4", [0, 4], Buffer.alloc(0)), /0 rows/],
  ["one dimension", numpyFile("<f4", [4], Buffer.alloc(16)), /the shape \[4\]; one image has \[rows, 4\]/],
  ["two images", numpyFile("<f4", [2, 1, 4], float32), /the shape \[2, 1, 4\]/],
  ["four dimensions", safetensorsFile("F32", [1, 1, 2, 4], float32), /the shape \[1, 1, 2, 4\]/],
  ["less data than its shape", numpyFile("<f4", [3, 4], float32), /32 bytes of data; 3 x 4 of float32 takes 48/],
  ["more data than its shape", numpyFile("<f4", [1, 4], float32), /32 bytes of data; 1 x 4 of float32 takes 16/],
  ["a shape beyond any memory", numpyFile("<f4", [9e15, 4], float32), /9000000000000000 rows/],
  ["columns first", numpyFile("<f4", [2, 4], float32, { order: "True" }), /not stored in row-major order/],
  ["another type", numpyFile("<f8", [2, 4], float32), /a type other than float32 and float16/],
  ["Python objects", numpyFile("|O", [2, 4], float32), /a type other/],
  ["integers", safetensorsFile("I64", [2, 4], Buffer.alloc(64)), /a type other than F32, F16 and BF16/],
  ["no number", numpyFile("<f4", [1, 4], Buffer.from(Float32Array.of(1, Number.NaN, 2, 3).buffer)), /not finite/],
  ["a cut header", numpyFile("<f4", [2, 4], float32).subarray(0, 40), /truncated: the header ends at byte 128/],
  ["cut data", safetensorsFile("F32", [2, 4], float32).subarray(0, -1), /truncated: their data ends at byte/],
  [
    "a long header of safetensors",
    safetensorsFile("F32", [2, 4], float32, { __metadata__: { a: "b".repeat(2 ** 16) } }),
    /have a header of 65\d{3} bytes; the limit is 65536/,
  ],
  [
    "a long header of .npy",
    numpyFile("<f4", [2, 4], float32, { version: 2, order: "False".padEnd(2 ** 16) }),
    /have a header of 65\d{3} bytes; the limit is 65536/,
  ],
  ["a header longer than the file", Buffer.alloc(16, 1), /neither an .npy nor a safetensors file/],
  ["nothing", Buffer.alloc(0), /neither/],
  ["a pickle of torch.save", Buffer.from("PK\x03\x04\0\0\x08\x08\0\0\0\0", "latin1"), /as torch\.save writes it; send/],
  ["a picture", Buffer.from("\x89PNG\r\n\x1a\n0000000000", "latin1"), /neither/],
] as const)("a file with %s is rejected, naming the image", ([, bytes, message]) => {
  expect(() => parse(bytes)).toThrow(
    expect.objectContaining({
      code: "invalid_image",
      parameter: "prompt.images[1]",
      message: expect.stringMatching(message),
    }),
  );
});

test("of several tensors, image_embeds is used, and none if none has that name", () => {
  const other = { other: { dtype: "F32", shape: [1], data_offsets: [32, 36] } };
  const bytes = Buffer.concat([float32, Buffer.alloc(4)]);
  expect(parse(safetensorsFile("F32", [2, 4], bytes, other, "image_embeds", 32)).data).toHaveLength(8);
  expect(() => parse(safetensorsFile("F32", [2, 4], bytes, other, "features", 32))).toThrow(
    /2 tensors, none of them named image_embeds/,
  );
});

test("a file with any altered byte is read or rejected, and nothing else happens", () => {
  const files = [numpyFile("<f4", [2, 4], float32), safetensorsFile("F16", [2, 4], float16)];
  const outcomeOf = (file: Uint8Array): unknown => {
    try {
      return parse(file).elementType;
    } catch (error) {
      return (error as { readonly code?: unknown }).code;
    }
  };
  const property = fc.property(
    fc.constantFrom(...files),
    fc.nat(),
    fc.integer({ min: 1, max: 255 }),
    (file, at, change) => {
      const altered = Buffer.from(file);
      altered[at % altered.length]! ^= change;
      expect(["float32", "invalid_image"]).toContain(outcomeOf(altered));
    },
  );
  fc.assert(property, { numRuns: 3000 });
});
