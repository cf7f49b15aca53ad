/** Computes exp(-x) for x of at least 0, several times faster than `Math.exp`, by a table of steps and a series. */

/** Steps per unit of x. */
export const STEPS_PER_UNIT = 64;
/** From here on, exp(-x) is below 1e-13 and counts as 0. */
const MAX_EXPONENT = 32;
export const NUM_STEPS = MAX_EXPONENT * STEPS_PER_UNIT;

const LINEAR_TERM = -1 / STEPS_PER_UNIT;
const QUADRATIC_TERM = LINEAR_TERM ** 2 / 2;
const CUBIC_TERM = LINEAR_TERM ** 3 / 6;

/** [NUM_STEPS + 1]: exp(-step / STEPS_PER_UNIT), and 0 for the last. */
export const expOfStep = Float64Array.from({ length: NUM_STEPS + 1 }, (_, step) =>
  step === NUM_STEPS ? 0 : Math.exp(-step / STEPS_PER_UNIT),
);

/** exp(-rest / STEPS_PER_UNIT) for a rest in [0, 1], exact to 3e-9, which is finer than float32 logits. */
export function expOfRest(rest: number): number {
  return 1 + rest * (LINEAR_TERM + rest * (QUADRATIC_TERM + rest * CUBIC_TERM));
}
