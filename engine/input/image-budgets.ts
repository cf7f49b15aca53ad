/** The memory that pictures of all requests may take together. */

export interface ImageBudgets {
  /** Encoded bytes of pictures being fetched or processed. */
  readonly maxFetchedBytes: number;
  /** Tensors of pictures until their prompts are computed. */
  readonly maxProcessedBytes: number;
}

/** Enough for dozens of the largest pictures, on any machine. */
const MAX_FETCHED_BYTES = 1024 ** 3;
/** Of the memory, for each of the two. The rest is for the model, the program and bodies. */
const SHARE = 0.25;

/** A single request may exceed them: its own limits bound it. */
export function imageBudgets(memoryBytes: number): ImageBudgets {
  const maxProcessedBytes = Math.floor(memoryBytes * SHARE);
  return { maxFetchedBytes: Math.min(MAX_FETCHED_BYTES, maxProcessedBytes), maxProcessedBytes };
}
