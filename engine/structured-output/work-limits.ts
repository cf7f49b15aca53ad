/** How much work structured outputs may cost; see WorkMeter for the unit, of which a millisecond has 100,000 to 200,000. */

/**
 * Of one row in one step. Ordinary forms take less than a thousandth in most steps; one that comes to free text in a
 * vocabulary of 150,000 tokens for the first time takes a tenth.
 */
export const maxStepUnits = 4_000_000;
/** What a request may spend when it begins, so that it can find the masks of its form. */
export const firstUnits = 16_000_000;
/** What is added at each of its tokens. What it does not spend is kept, up to `firstUnits`. */
export const unitsPerToken = 100_000;
/** What a step may cost in addition for each token that is followed again after a preemption. */
export const unitsPerReplayedToken = 10_000;
