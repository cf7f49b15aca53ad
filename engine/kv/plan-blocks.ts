/** Computes the number of blocks of a paged KV cache. */
import { EngineError } from "../contract/errors.ts";
import type { KvCapacity } from "./kv-manager.ts";
import { planKvCache } from "./memory-plan.ts";
import type { KvShape } from "./memory-plan.ts";
import { stateBytes } from "./state-cache.ts";
import { numStateRows } from "./state-rows.ts";

export interface BlockPlanOptions {
  /** Tokens of one block. */
  readonly blockSize: number;
  readonly maxNumSequences: number;
  /** Tokens of the longest sequence. */
  readonly maxLen: number;
  /** Memory for keys, values and recurrent states, in bytes. */
  readonly roomBytes: number;
  /** Whether the cache takes all of `roomBytes`, or only as much as all sequences need at full length. */
  readonly takesAllRoom: boolean;
  /** Overrides the number that would fit; null or undefined plans it. */
  readonly numBlocks?: number | null | undefined;
}

/** One block is scratch memory and holds no tokens. */
const NUM_SCRATCH_BLOCKS = 1;

/**
 * Sequences share the blocks, so the cache may be smaller than all of them at full length; a sequence that finds no
 * block makes another one wait. One sequence of full length always has to fit.
 *
 * @throws EngineError `invalid_configuration` if it does not; names the length that would fit.
 */
export function planBlocks(decoder: KvShape, options: BlockPlanOptions): KvCapacity {
  const { blockSize, maxNumSequences, maxLen, roomBytes, takesAllRoom } = options;
  const { bytesPerToken } = planKvCache(decoder, { numSlots: 1, maxLen });
  const blocksPerSequence = Math.ceil(maxLen / blockSize);
  const allStateBytes = decoder.recurrent ? stateBytes(decoder.recurrent) * numStateRows(maxNumSequences) : 0;
  const numFitting = Math.floor(Math.max(roomBytes - allStateBytes, 0) / (bytesPerToken * blockSize));
  const numWanted = takesAllRoom ? numFitting : maxNumSequences * blocksPerSequence + NUM_SCRATCH_BLOCKS;
  const numBlocks = options.numBlocks ?? Math.min(numFitting, numWanted);
  const capacity = blockCapacity(blockSize, numBlocks);
  const { numTokens } = capacity;
  if (numTokens < maxLen) {
    throw new EngineError(
      "invalid_configuration",
      `The KV cache of ${numBlocks} blocks of ${blockSize} tokens has no room for one sequence of ${maxLen} tokens. ` +
        (numTokens > 0 ? `A sequence of ${numTokens} tokens would fit.` : "Not one token would fit.") +
        (takesAllRoom && options.numBlocks == null
          ? " A smaller dtype, a higher GPU memory utilization and a larger GPU leave more for the cache."
          : ""),
      numTokens > 0 ? { setting: "maxModelLen" } : {},
    );
  }
  return capacity;
}

/** @param numBlocks Includes the scratch block. */
export function blockCapacity(blockSize: number, numBlocks: number): KvCapacity {
  return { blockSize, numBlocks, numTokens: Math.max(numBlocks - NUM_SCRATCH_BLOCKS, 0) * blockSize };
}
