/** Limits on the work of structured outputs, in units of WorkMeter. A millisecond is 100,000 to 200,000 units. */

/**
 * Limit per row and step: tens of milliseconds. Ordinary forms take less than a hundredth of it in most steps. The
 * first mask of free text with a vocabulary of 150,000 tokens takes a tenth.
 */
export const MAX_STEP_UNITS = 4_000_000;
/** Units that a request starts with, enough to compute the masks of its form. */
export const FIRST_UNITS = 16_000_000;
/** Units that a request gets per token. Unspent units accumulate up to `FIRST_UNITS`. */
export const UNITS_PER_TOKEN = 100_000;
/** Units that a step gets for each token that is replayed after a preemption. */
export const UNITS_PER_REPLAYED_TOKEN = 10_000;
