/** Computes exp(-x) for x of at least 0, several times faster than `Math.exp`, by a table of steps and a series. */

/** Steps per unit of x. */
export const stepsPerUnit = 64;
/** From here on, exp(-x) is below 1e-13 and counts as 0. */
const maxExponent = 32;
export const numSteps = maxExponent * stepsPerUnit;

const linearTerm = -1 / stepsPerUnit;
const quadraticTerm = linearTerm ** 2 / 2;
const cubicTerm = linearTerm ** 3 / 6;

/** [numSteps + 1]: exp(-step / stepsPerUnit), and 0 for the last. */
export const expOfStep = Float64Array.from({ length: numSteps + 1 }, (_, step) =>
  step === numSteps ? 0 : Math.exp(-step / stepsPerUnit),
);

/** exp(-rest / stepsPerUnit) for a rest in [0, 1], exact to 3e-9, which is finer than float32 logits. */
export function expOfRest(rest: number): number {
  return 1 + rest * (linearTerm + rest * (quadraticTerm + rest * cubicTerm));
}
