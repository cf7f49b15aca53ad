/** The caches of both kinds of memory. A device's is shown over host memory that ONNX Runtime allocates, as it does there. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createKvCache } from "../../../engine/kv/create-kv-cache.ts";
import type { KvSession } from "../../../engine/kv/kv-cache.ts";
import type { DecoderGraph } from "../../../engine/models/built-model.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import { loadDecoderWithDeviceMemory } from "./decoder-with-device-memory.ts";
import type { DecoderWithDeviceMemory } from "./decoder-with-device-memory.ts";
import { maxDifference, run } from "./run-over-cache.ts";

const numSlots = 3;
const maxLen = 24;
/** Tokens of the prompt of each slot. */
const promptLengths = [5, 1, 17];

describe("slots within one allocation of a device", () => {
  let loaded: DecoderWithDeviceMemory;
  let graph: DecoderGraph;
  let session: Session;
  let device: KvSession;

  beforeAll(async () => {
    loaded = await loadDecoderWithDeviceMemory();
    ({ graph, session, device } = loaded);
  });

  afterAll(() => loaded[Symbol.asyncDispose]());

  test("a ragged batch over them computes what it computes over a host's array, and so does each slot alone", () => {
    const logitsOver = (kvSession: KvSession): Float32Array[] => {
      using cache = createKvCache(kvSession, graph, { numSlots, maxLen });
      expect(cache.maxSlotsPerRun).toBe(numSlots);
      const over = { cache, session, graph };
      const prompts = promptLengths.map((length, slot) => Array.from({ length }, (_, place) => 7 + slot + place));
      const prefilled = prompts.map((prompt, slot) => run(over, slot, [prompt], [0]));
      const together = run(over, 0, [[9], [11], [13]], promptLengths);
      const alone = [9, 11, 13].map((tokenId, slot) => run(over, slot, [[tokenId]], [promptLengths[slot]!]));
      expect(maxDifference(together, Float32Array.from(alone.flatMap((row) => Array.from(row))))).toBeLessThan(1e-4);
      return [...prefilled, together];
    };
    const onHost = logitsOver(session);
    const onDevice = logitsOver(device);
    onDevice.forEach((logits, index) => expect(maxDifference(logits, onHost[index]!)).toBeLessThan(1e-5));
    expect(maxDifference(onDevice[0]!, onDevice[1]!)).toBeGreaterThan(0.01);
  });

  test("a slot whose bytes are no multiple of 256 is lengthened until they are", () => {
    const shape = { numLayers: 1, numKvHeads: 1, headDim: 24, kvElementType: "float16" } as const;
    using cache = createKvCache(device, shape, { numSlots: 2, maxLen: 5 });
    using view = cache.view(1, 1);
    expect(view.keys[0]!.shape).toEqual([1, 1, 16, 24]);
    expect(view.keys[0]!.byteLength % 256).toBe(0);
  });

  test("a run takes as many slots as have fewer than 2^31 elements", () => {
    const shape = { numLayers: 1, numKvHeads: 8, headDim: 128, kvElementType: "float16" } as const;
    const allocated: number[][] = [];
    const counting: KvSession = {
      deviceMemory: loaded.memory,
      // The size is what counts here: 40 slots of 2 ^ 17 tokens have 10 GiB.
      allocateTensor: (elementType, wanted) => {
        allocated.push([...wanted]);
        return loaded.memory.allocate(elementType, [1]);
      },
    };
    using cache = createKvCache(counting, shape, { numSlots: 40, maxLen: 2 ** 17 });
    expect(allocated).toEqual([
      [40, 8, 2 ** 17, 128],
      [40, 8, 2 ** 17, 128],
    ]);
    expect(cache.maxSlotsPerRun).toBe(15);
  });
});
