/** The scheduler's decision for one step, as data. */
import type { ImageFeature } from "../core/engine-request.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import type { Sequence } from "./sequence.ts";

/** The next tokens of one prompt, or of a sequence that was preempted: `numTokens` tokens, starting at `firstToken`. */
export interface PrefillChunk {
  readonly sequence: Sequence;
  readonly firstToken: number;
  readonly numTokens: number;
  /** Images to encode before this chunk runs. Their embeddings stay referenced for later chunks. */
  readonly imagesToEncode: readonly ImageFeature[];
}

export interface SchedulerOutput {
  /** Performed in this order, before anything is computed. */
  readonly transfers: readonly SlotTransfer[];
  /** Sequences that compute their newest output token and sample the next. */
  readonly decodes: readonly Sequence[];
  readonly prefills: readonly PrefillChunk[];
  /**
   * The image that the most urgent of the sequences without an image's embeddings waits for, to encode beside this step
   * and the next ones. It may be under way already. Null if none waits.
   */
  readonly awaitedImage: ImageFeature | null;
}

/** Whether the chunk is one output token of a sequence that was preempted. It is computed like a newest token. */
export function isReplayedToken({ sequence, firstToken, numTokens }: PrefillChunk): boolean {
  return numTokens === 1 && firstToken >= sequence.numPromptTokens;
}

/** Whether the chunk is the last before the sequence decodes, so that the logits of its last token are sampled. */
export function isLastChunk({ sequence, firstToken, numTokens }: PrefillChunk): boolean {
  return firstToken + numTokens === sequence.numTokensToPrefill;
}
