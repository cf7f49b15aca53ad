/** Turns bounds of the digits after a decimal point into grammars. */

/** Digits without trailing zeros: "" is zero, "25" a quarter. Null means no bound. */
export interface FractionBounds {
  readonly min: string | null;
  readonly max: string | null;
  readonly excludesMin: boolean;
  readonly excludesMax: boolean;
}

export interface Fractions {
  /** Whether no digit at all, which is zero, is within the bounds. */
  readonly includesNone: boolean;
  /** In EBNF: exactly these texts of one digit or more; null if there are none. */
  readonly digits: string | null;
}

/**
 * The fractions of at most `numDigits` digits that are within the bounds. Those above zero without an upper bound have no
 * trailing zeros.
 */
export function fractionsBetween(bounds: FractionBounds, numDigits: number): Fractions {
  const { max, excludesMin, excludesMax } = bounds;
  const min = bounds.min === "" && !excludesMin ? null : bounds.min;
  const includesNone = min === null && !(max === "" && excludesMax);
  if (numDigits === 0) return { includesNone, digits: null };
  if (max === "") return { includesNone, digits: includesNone ? `"0"{1, ${numDigits}}` : null };
  if (max === null && min === null) return { includesNone, digits: `[0-9]{1, ${numDigits}}` };
  if (max === null && min === "") return { includesNone, digits: `[0-9]{0, ${numDigits - 1}} [1-9]` };
  const lowest = min === null ? 0 : firstOf(min);
  const highest = max === null ? 9 : firstOf(max);
  const options: string[] = [];
  /** First digits after which the rest has these bounds. */
  const add = (from: number, to: number, rest: Pick<FractionBounds, "min" | "max">): void => {
    if (from > to) return;
    const { includesNone: canEnd, digits } = fractionsBetween({ ...rest, excludesMin, excludesMax }, numDigits - 1);
    const first = from === to ? `"${from}"` : `[${from}-${to}]`;
    if (digits !== null) options.push(canEnd ? `${first} (${digits})?` : `${first} (${digits})`);
    else if (canEnd) options.push(first);
  };
  if (lowest === highest && min !== null && max !== null) add(lowest, lowest, { min: min.slice(1), max: max.slice(1) });
  else {
    if (min !== null) add(lowest, lowest, { min: min.slice(1), max: null });
    add(min === null ? 0 : lowest + 1, max === null ? 9 : highest - 1, { min: null, max: null });
    if (max !== null) add(highest, highest, { min: null, max: max.slice(1) });
  }
  return { includesNone, digits: options.length === 0 ? null : options.join(" | ") };
}

function firstOf(digits: string): number {
  return Number(digits.charAt(0) || "0");
}
