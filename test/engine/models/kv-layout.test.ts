import { beforeAll, describe, expect, test } from "vitest";

import { familyConfig } from "../../gpu/cuda-families.ts";
import { resolveKvLayout, resolveKvPrecision } from "../../support/engine/shipped-models.ts";

describe("the layout of a Llama with heads of 64", () => {
  let checkpoint: Parameters<typeof resolveKvLayout>[1];

  beforeAll(async () => {
    const sizes = { hidden_size: 256, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 64 };
    checkpoint = { config: await familyConfig({ name: "llama", sizes }), onnxFileNames: null };
  });

  test("is paged on cuda, and slots elsewhere", () => {
    expect(resolveKvLayout({ device: "cuda" }, checkpoint)).toEqual({ kind: "paged", blockSize: 256 });
    for (const device of ["cpu", "webgpu"] as const) {
      // Settings for a GPU do not end a start on another device.
      expect(resolveKvLayout({ device, blockSize: 256, numBlocks: 9 }, checkpoint)).toEqual({ kind: "slots" });
    }
  });

  test.for([
    [{ blockSize: 16 }, "the block size (16)"],
    [{ numBlocks: 9 }, "the number of blocks (9)"],
  ] as const)("rejects slots together with %o", ([blocks, named]) => {
    const settings = { device: "cpu", kvLayout: "slots", ...blocks } as const;
    expect(() => resolveKvLayout(settings, checkpoint)).toThrow(`Leave ${named} out, or choose the KV layout "paged"`);
  });

  test.for([
    [{ device: "webgpu", kvLayout: "paged" }, "The webgpu device has no paged KV cache."],
    [{ device: "cuda", blockSize: 128 }, "A block of 128 tokens is not a multiple of 256"],
  ] as const)("rejects %o", ([settings, reason]) => {
    expect(() => resolveKvLayout(settings, checkpoint)).toThrow(reason);
  });

  test("8-bit keys and values in blocks are rejected by the name of the layout", () => {
    const settings = { device: "cpu", dtype: "int8", kvCacheDtype: "int8" } as const;
    expect(() => resolveKvPrecision(settings, { kind: "paged", blockSize: 16 }, checkpoint)).toThrow(
      'The KV cache of the KV layout "paged" on cpu has no int8, which is for KV slots on the cpu',
    );
  });

  test("8-bit floats take blocks of 128 tokens on cuda, which other caches of this model do not", () => {
    const settings = { device: "cuda", kvCacheDtype: "fp8" } as const;
    expect(resolveKvLayout(settings, checkpoint)).toEqual({ kind: "paged", blockSize: 128 });
    expect(resolveKvLayout({ ...settings, blockSize: 384 }, checkpoint)).toEqual({ kind: "paged", blockSize: 384 });
    expect(() => resolveKvLayout({ ...settings, blockSize: 64 }, checkpoint)).toThrow("is not a multiple of 128");
  });

  test.for(["cuda", "cpu"] as const)("8-bit floats are for blocks: %s", (device) => {
    const settings = { device, dtype: "auto", kvCacheDtype: "fp8" } as const;
    const paged = { kind: "paged", blockSize: 128 } as const;
    expect(resolveKvPrecision(settings, paged, checkpoint)).toEqual({ kind: "fp8" });
    expect(() => resolveKvPrecision(settings, { kind: "slots" }, checkpoint)).toThrow(
      `The KV cache of the KV layout "slots" on ${device} has no fp8, which is for a paged KV cache on cuda.`,
    );
    expect(() => resolveKvPrecision(settings, paged, { ...checkpoint, onnxFileNames: ["model.onnx"] })).toThrow(
      "The KV cache of a ready-made ONNX export has no fp8",
    );
  });
});
