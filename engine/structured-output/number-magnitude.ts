/** The decimal digits of bounds, as few that numbers remain distinct and ordered when they are parsed. */

/** Numbers with at most this many digits remain distinct and ordered as double-precision numbers. */
export const MAX_DIGITS = 15;

/** A number from zero on. */
export interface Magnitude {
  readonly whole: bigint;
  /** Digits after the point, without trailing zeros. */
  readonly fraction: string;
}

export const zero: Magnitude = { whole: 0n, fraction: "" };

/**
 * The number itself, or the next one of `MAX_DIGITS` digits in a direction. `bound` is from zero on.
 *
 * @param isExcluded Whether the result must not be parsed as the bound itself, nor a longer number beside it.
 */
export function magnitudeWithin(bound: number, direction: "up" | "down", isExcluded = false): Magnitude {
  const [mantissa, exponentText] = bound.toExponential().split("e") as [string, string];
  const all = mantissa.replace(".", "");
  const isCoarse = bound > Number.MAX_SAFE_INTEGER || (isExcluded && bound >= FIRST_COARSE);
  if (all.length <= MAX_DIGITS && !isCoarse) return decimalOf(BigInt(all), all.length - 1 - Number(exponentText));
  if (Number.isSafeInteger(bound) && !isCoarse) return { whole: BigInt(bound), fraction: "" };
  const cut = BigInt(all.slice(0, MAX_DIGITS).padEnd(MAX_DIGITS, "0"));
  const isCut = all.length > MAX_DIGITS;
  const step = direction === "up" ? 1n : isCut ? 0n : -1n;
  return decimalOf(cut + step, MAX_DIGITS - 1 - Number(exponentText));
}

/** From here on, numbers of more than `MAX_DIGITS` digits may be parsed as the next whole number. */
const FIRST_COARSE = 1e15;

/** `digits` / 10 ** `numDecimals` */
function decimalOf(digits: bigint, numDecimals: number): Magnitude {
  if (numDecimals <= 0) return { whole: digits * 10n ** BigInt(-numDecimals), fraction: "" };
  const text = String(digits).padStart(numDecimals + 1, "0");
  return { whole: BigInt(text.slice(0, -numDecimals)), fraction: text.slice(-numDecimals).replace(/0+$/, "") };
}

/** Larger integers than the safe ones were rounded when they were parsed, so they are rounded in the other direction. */
export function integerWithin(bound: number, direction: "up" | "down"): bigint {
  if (Number.isSafeInteger(bound)) return BigInt(bound);
  const isAway = bound < 0 === (direction === "down");
  const { whole } = magnitudeWithin(Math.abs(bound), isAway ? "up" : "down");
  return bound < 0 ? -whole : whole;
}
