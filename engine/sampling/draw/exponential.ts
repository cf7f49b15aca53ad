/** exp(-x) for x of at least 0, several times as fast as `Math.exp`: a table of steps, and a series in between. */

/** Steps per unit of x. */
export const stepsPerUnit = 64;
/** From here on exp(-x) is less than 1e-13, which next to 1 is nothing: it counts as 0. */
const maxExponent = 32;
export const numSteps = maxExponent * stepsPerUnit;

const linearTerm = -1 / stepsPerUnit;
const quadraticTerm = linearTerm ** 2 / 2;
const cubicTerm = linearTerm ** 3 / 6;

/** [numSteps + 1]: exp(-step / stepsPerUnit), and 0 for the last. */
export const expOfStep = Float64Array.from({ length: numSteps + 1 }, (_, step) =>
  step === numSteps ? 0 : Math.exp(-step / stepsPerUnit),
);

/** exp(-rest / stepsPerUnit) of a rest in [0, 1]: exact to 3e-9, next to which float32 logits are coarse. */
export function expOfRest(rest: number): number {
  return 1 + rest * (linearTerm + rest * (quadraticTerm + rest * cubicTerm));
}
