import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { bytesPerElement, readSafetensorsHeader } from "../../../engine/weights/safetensors.ts";
import {
  encodeSafetensors,
  encodeWithHeader,
  floatTensor,
  writeSafetensors,
  type SafetensorsDtype,
} from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const elementTypes = {
  F32: "float32",
  F16: "float16",
  BF16: "bfloat16",
  F64: "float64",
  C64: "complex64",
  F8_E4M3: "float8e4m3",
  F8_E4M3FNUZ: "float8e4m3fnuz",
  F8_E5M2: "float8e5m2",
  F8_E5M2FNUZ: "float8e5m2fnuz",
  F8_E8M0: "float8e8m0",
  I8: "int8",
  U8: "uint8",
  I16: "int16",
  U16: "uint16",
  I32: "int32",
  U32: "uint32",
  I64: "int64",
  U64: "uint64",
  BOOL: "bool",
} as const;

const tensorSpecs = fc.uniqueArray(
  fc.record({
    name: fc.string({ minLength: 1, maxLength: 40 }).filter((name) => name !== "__metadata__"),
    dtype: fc.constantFrom(...(Object.keys(elementTypes) as SafetensorsDtype[])),
    shape: fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 }),
  }),
  { selector: (tensor) => tensor.name, maxLength: 8 },
);

test("tensors are found where they were written", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "model.safetensors");
  await fc.assert(
    fc.asyncProperty(tensorSpecs, async (specs) => {
      let filler = 1;
      const tensors = specs.map(({ name, dtype, shape }) => {
        const byteLength = shape.reduce((product, size) => product * size, bytesPerElement[elementTypes[dtype]]);
        return { name, dtype, shape, bytes: new Uint8Array(byteLength).map(() => filler++) };
      });
      await writeSafetensors(file, tensors);
      const content = await readFile(file);
      const found = (await readSafetensorsHeader(file))!;
      expect([...found.keys()].sort()).toEqual(specs.map((spec) => spec.name).sort());
      for (const { name, dtype, shape, bytes } of tensors) {
        const { byteOffset, byteLength, ...tensor } = found.get(name)!;
        expect(tensor).toEqual({ name, elementType: elementTypes[dtype], shape, file });
        expect(Uint8Array.from(content.subarray(byteOffset, byteOffset + byteLength))).toEqual(bytes);
      }
    }),
    { numRuns: 60, examples: [[[{ name: "__proto__", dtype: "F32", shape: [] }]]] },
  );
});

test("every truncated or extended file is rejected", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "model.safetensors");
  const whole = encodeSafetensors([floatTensor("a", [2, 3], [1, 2, 3, 4, 5, 6]), floatTensor("b", [1], [7], "F16")]);
  for (let length = 0; length < whole.byteLength; length++) {
    await writeFile(file, whole.subarray(0, length));
    await expect(readSafetensorsHeader(file)).rejects.toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringContaining("model.safetensors is truncated"),
    });
  }
  await writeFile(file, Buffer.concat([whole, Buffer.from([0])]));
  await expect(readSafetensorsHeader(file)).rejects.toMatchObject({ code: "invalid_checkpoint" });
  await writeFile(file, whole);
  expect((await readSafetensorsHeader(file))!.size).toBe(2);
});

test("a file with any bytes altered is read or rejected, and never crashes", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "model.safetensors");
  const whole = encodeSafetensors([floatTensor("a", [2, 3], [1, 2, 3, 4, 5, 6]), floatTensor("b", [1], [7], "F16")]);
  const alteration = fc.tuple(fc.nat(whole.byteLength - 1), fc.nat(255));
  await fc.assert(
    fc.asyncProperty(fc.array(alteration, { minLength: 1, maxLength: 4 }), async (alterations) => {
      const altered = Buffer.from(whole);
      for (const [position, byte] of alterations) altered[position] = byte;
      await writeFile(file, altered);
      const outcome = await readSafetensorsHeader(file).then(
        () => "read",
        (error: unknown) => (error instanceof EngineError ? error.code : error),
      );
      expect(["read", "invalid_checkpoint"]).toContain(outcome);
    }),
    { numRuns: 300 },
  );
});

const f32 = (shape: readonly unknown[], start: unknown, end: unknown): unknown => ({
  dtype: "F32",
  shape,
  data_offsets: [start, end],
});

const lies: readonly [claim: string, header: unknown, dataBytes: number, message: RegExp][] = [
  ["bytes that do not fit the shape", { a: f32([2], 0, 4) }, 4, /Tensor a in lying\.safetensors has 4 bytes.* needs 8/],
  ["an end before its start", { a: f32([0], 8, 4) }, 8, /Tensor a .* has -4 bytes/],
  ["overlapping tensors", { a: f32([2], 0, 8), b: f32([2], 4, 12) }, 12, /Tensor b .* overlaps/],
  ["two tensors in the same place", { a: f32([2], 0, 8), b: f32([2], 0, 8) }, 8, /Tensor b .* overlaps/],
  ["a hole", { a: f32([1], 0, 4), b: f32([1], 8, 12) }, 12, /Tensor b .* hole/],
  ["a hole at the start", { a: f32([1], 4, 8) }, 8, /Tensor a .* hole/],
  ["tensors past the end", { a: f32([4], 0, 16) }, 8, /truncated: tensor a ends at byte/],
  ["bytes of no tensor at the end", { a: f32([1], 0, 4) }, 8, /tensors end at byte/],
  ["a shape too large to count", { a: f32([2 ** 40, 2 ** 40], 0, 8) }, 8, /Tensor a .* needs/],
  ["a negative size", { a: f32([-2, -1], 0, 8) }, 8, /Tensor a .* has no shape/],
  ["a fractional offset", { a: f32([1], 0.5, 4.5) }, 8, /Tensor a .* has no offsets/],
  ["an offset that is no number", { a: f32([1], "0", 4) }, 4, /Tensor a .* has no offsets/],
  ["an unknown dtype", { a: { dtype: "F4", shape: [4], data_offsets: [0, 2] } }, 2, /Tensor a .* "F4"/],
  ["a tensor that is no object", { a: 3 }, 0, /Tensor a .* not described/],
  ["a header that is a list", [1, 2], 0, /header that is not an object/],
];

test.for(lies)("a header with %s is rejected", async ([, header, dataBytes, message]) => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "lying.safetensors");
  await writeFile(file, encodeWithHeader(header, [new Uint8Array(dataBytes)]));
  const error = await readSafetensorsHeader(file).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(EngineError);
  expect(error).toMatchObject({ code: "invalid_checkpoint", message: expect.stringMatching(message) });
});

test("a header length of exabytes is rejected without allocating it", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "huge.safetensors");
  for (const length of [2n ** 64n - 1n, 2n ** 63n, 100_000_001n]) {
    const bytes = Buffer.alloc(64);
    bytes.writeBigUInt64LE(length);
    await writeFile(file, bytes);
    await expect(readSafetensorsHeader(file)).rejects.toThrow(`declares a header of ${length} bytes`);
  }
});

test("a Git LFS pointer in place of the weights is reported as one", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "model.safetensors");
  await writeFile(file, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  await expect(readSafetensorsHeader(file)).rejects.toThrow("model.safetensors is a Git LFS pointer");
});

test("messages contain the file name, not its path on the host", async () => {
  await using folder = await createTemporaryFolder();
  await writeFile(join(folder.path, "model.safetensors"), "");
  await mkdir(join(folder.path, "folder.safetensors"));
  for (const name of ["model.safetensors", "folder.safetensors"]) {
    const error = await readSafetensorsHeader(join(folder.path, name)).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "invalid_checkpoint", message: expect.stringContaining(name) });
    expect((error as Error).message).not.toContain("/");
  }
  expect(await readSafetensorsHeader(join(folder.path, "missing.safetensors"))).toBe(null);
});
