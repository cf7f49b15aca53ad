/** The memory that pictures of all requests may take together. */

export interface ImageBudgets {
  /** Encoded bytes of pictures being fetched or processed. */
  readonly maxFetchedBytes: number;
  /** Tensors of pictures until their prompts are computed. */
  readonly maxProcessedBytes: number;
  /** Decoded frames of a request's videos that are in memory at once, unless a single item has more. */
  readonly maxDecodedBytes: number;
}

/** Enough for dozens of the largest pictures, on any machine. */
const MAX_FETCHED_BYTES = 1024 ** 3;
/** Of the memory, for each of the two. The rest is for the model, the program and bodies. */
const SHARE = 0.25;

/** Ten frames of 1080p. The fewer frames are decoded at once, the more often a video is decoded from a key picture on. */
const MIN_DECODED_BYTES = 64 * 1024 ** 2;
/** Twenty frames of 4K. */
const MAX_DECODED_BYTES = 512 * 1024 ** 2;
const DECODED_SHARE = 1 / 16;

/** A single request may exceed them: its own limits bound it. */
export function imageBudgets(memoryBytes: number): ImageBudgets {
  const maxProcessedBytes = Math.floor(memoryBytes * SHARE);
  const decodedBytes = Math.floor(memoryBytes * DECODED_SHARE);
  return {
    maxFetchedBytes: Math.min(MAX_FETCHED_BYTES, maxProcessedBytes),
    maxProcessedBytes,
    maxDecodedBytes: Math.max(MIN_DECODED_BYTES, Math.min(decodedBytes, MAX_DECODED_BYTES)),
  };
}
