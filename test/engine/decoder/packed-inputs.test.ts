import * as fc from "fast-check";
import { expect, test } from "vitest";

import { decodeBounds, decodeShape } from "../../../engine/decoder/decode-buckets.ts";
import { noEmbeddings } from "../../../engine/decoder/decoder.ts";
import type { TokenSpan } from "../../../engine/decoder/decoder.ts";
import { shapeOfSpans } from "../../../engine/decoder/packed-inputs.ts";
import { BlockKvManager } from "../../../engine/kv/block-kv-manager.ts";
import { blockCapacity } from "../../../engine/kv/plan-blocks.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createRequest } from "../scheduler/create-scheduler.ts";

const decoding = fc.record({ numComputedTokens: fc.integer({ min: 1, max: 900 }), numDrafted: fc.nat({ max: 40 }) });

test("the bounds of a decode step hold, also for sequences whose last draft was rejected", () => {
  let numLeftBlocks = 0;
  const property = fc.property(
    fc.constantFrom(4, 16, 64),
    fc.array(decoding, { minLength: 1, maxLength: 5 }),
    (blockSize, decodes) => {
      const capacity = blockCapacity(blockSize, 1500);
      const kvManager = new BlockKvManager({ capacity, maxNumSequences: 5, enablePrefixCaching: false });
      const spans = decodes.map(({ numComputedTokens, numDrafted }, index): TokenSpan => {
        const sequence = new Sequence(createRequest(`${index}`, { numPromptTokens: numComputedTokens }), index);
        const endToken = numComputedTokens + 1;
        kvManager.tryPlace(sequence)!.take();
        kvManager.reserve(sequence, endToken + numDrafted);
        kvManager.forgetDraft();
        kvManager.reserve(sequence, endToken);
        numLeftBlocks += sequence.blockTable.length - Math.ceil(endToken / blockSize);
        return { sequence, firstToken: numComputedTokens, endToken, numLogits: 1, embeddings: noEmbeddings };
      });
      const shape = decodeShape(shapeOfSpans(spans, blockSize));
      const longest = Math.max(...spans.map(({ endToken }) => endToken));
      const { maxNewTokens, maxLength, minLongestLength } = decodeBounds(shape, blockSize, longest);
      expect(maxNewTokens).toBe(1);
      expect(minLongestLength).toBeLessThanOrEqual(longest);
      expect(maxLength).toBeGreaterThanOrEqual(longest);
      expect(maxLength).toBe(shape.numColumns * blockSize);
    },
  );
  fc.assert(property);
  expect(numLeftBlocks).toBeGreaterThan(0);
});
