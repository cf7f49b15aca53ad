/** What the scheduler decided for one step, as data. */
import type { ImageFeature } from "../core/engine-request.ts";
import type { Sequence } from "./sequence.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";

/** The next tokens of one prompt: `numTokens` from `firstToken` on. */
export interface PrefillChunk {
  readonly sequence: Sequence;
  readonly firstToken: number;
  readonly numTokens: number;
  /** Images that must be encoded before this chunk can run; their embeddings stay held for later chunks. */
  readonly imagesToEncode: readonly ImageFeature[];
}

export interface SchedulerOutput {
  /** To be made in this order, before anything is computed. */
  readonly transfers: readonly SlotTransfer[];
  /** Sequences that compute their newest output token and sample the next. */
  readonly decodes: readonly Sequence[];
  readonly prefills: readonly PrefillChunk[];
}

/** Whether the chunk ends its prompt, so that its last token's logits are sampled. */
export function isLastChunk({ sequence, firstToken, numTokens }: PrefillChunk): boolean {
  return firstToken + numTokens === sequence.numPromptTokens;
}
