/** Short prompts in neighbouring KV slots, padded to one length, are computed in one run. */
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";

/**
 * A run costs as much as 24 tokens on two cores (135M parameters, int8), because it reads all weights. A prompt joins a
 * pack only if it adds less padding than that.
 */
const MAX_PADDING_PER_PROMPT = 16;
/** Larger packs save hardly any time: from 64 tokens on, a run takes as long as its matrix products. */
const MAX_PACKED_TOKENS = 256;

/**
 * The first chunks of prompts without images, in packs of neighbouring slots; other chunks alone. Attention takes several
 * sequences with several tokens each only if none has earlier tokens.
 */
export function packPrompts(chunks: readonly PrefillChunk[]): PrefillChunk[][] {
  const packs: PrefillChunk[][] = [];
  let longest = 0;
  for (const chunk of chunks.toSorted((left, right) => left.sequence.kvSlot! - right.sequence.kvSlot!)) {
    const pack = packs.at(-1);
    const before = pack?.at(-1);
    const isNeighbour = before !== undefined && chunk.sequence.kvSlot === before.sequence.kvSlot! + 1;
    if (pack !== undefined && isNeighbour && isPackable(before) && isPackable(chunk)) {
      const newLongest = Math.max(longest, chunk.numTokens);
      const numPadded = (pack.length + 1) * newLongest;
      const padding = numPadded - pack.length * longest - chunk.numTokens;
      if (numPadded <= MAX_PACKED_TOKENS && padding <= MAX_PADDING_PER_PROMPT) {
        pack.push(chunk);
        longest = newLongest;
        continue;
      }
    }
    packs.push([chunk]);
    longest = chunk.numTokens;
  }
  return packs;
}

function isPackable({ sequence, firstToken }: PrefillChunk): boolean {
  return firstToken === 0 && sequence.images.length === 0;
}
