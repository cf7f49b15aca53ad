/**
 * Runs of a step over 8-bit floats. CUDA's fast kernel computes one token of each sequence. A run with prompts copies the
 * keys and values of its sequences into 16 bits first, as many for each sequence as the longest one has.
 */
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { DecoderRun } from "./decoder.ts";

/** Mutable. */
interface GrowingRun {
  readonly decodes: readonly Sequence[];
  readonly chunks: PrefillChunk[];
  /** Tokens of the longest sequence after the run. */
  longest: number;
}

/**
 * Chunks in their order, as many in each run as copy at most `maxTokens` tokens; a chunk alone may copy more. Newest tokens
 * have a run of their own, unless they and the first chunk copy no more than that together: each run reads all weights.
 */
export function planFp8Runs(
  decodes: readonly Sequence[],
  chunks: readonly PrefillChunk[],
  maxTokens: number,
): readonly DecoderRun[] {
  const longestDecode = Math.max(0, ...decodes.map(({ numComputedTokens }) => numComputedTokens + 1));
  const runs: GrowingRun[] = decodes.length === 0 ? [] : [{ decodes, chunks: [], longest: longestDecode }];
  for (const chunk of chunks) {
    const end = chunk.firstToken + chunk.numTokens;
    const last = runs.at(-1);
    const longest = Math.max(end, last?.longest ?? 0);
    if (last !== undefined && (last.decodes.length + last.chunks.length + 1) * longest <= maxTokens) {
      last.chunks.push(chunk);
      last.longest = longest;
    } else {
      runs.push({ decodes: [], chunks: [chunk], longest: end });
    }
  }
  return runs.map(({ decodes: ofRun, chunks: together }) => ({ decodes: ofRun, chunks: together }));
}
