/** Turns bounds of numbers into grammars of their digits. */
import { fractionsBetween } from "./fraction-range.ts";
import type { FractionBounds } from "./fraction-range.ts";
import { integerWithin, magnitudeWithin, MAX_DIGITS, zero } from "./number-magnitude.ts";
import type { Magnitude } from "./number-magnitude.ts";

export type NumberRange =
  | { readonly kind: "unbounded" }
  /** The body of a rule that matches exactly these JSON numbers, in EBNF. */
  | { readonly kind: "bounded"; readonly rule: string }
  | { readonly kind: "unsupported" };

/** Maximum number of digits before the point of a number without a bound on that side. */
export const MAX_WHOLE_DIGITS = 40;
/** No number is beyond it: `MAX_WHOLE_DIGITS` digits, and an exponent of two. */
const LARGEST = 1e140;

/** `null` means no bound. */
export interface NumberBounds {
  readonly min: number | null;
  readonly max: number | null;
  readonly excludesMin: boolean;
  readonly excludesMax: boolean;
}

interface IntegerBounds {
  readonly min: bigint | null;
  readonly max: bigint | null;
}

/** Of numbers from zero on. */
interface MagnitudeBounds {
  readonly min: Magnitude;
  readonly max: Magnitude | null;
  readonly excludesMin: boolean;
  readonly excludesMax: boolean;
}

export const rangeKeywords = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] as const;

/** Null for a bound that is not a number. */
export function numberBoundsOf(schema: Readonly<Record<string, unknown>>): NumberBounds | null {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  if (!rangeKeywords.every((keyword) => schema[keyword] === undefined || typeof schema[keyword] === "number"))
    return null;
  const lower = [minimum, exclusiveMinimum].filter((bound) => bound !== undefined) as number[];
  const upper = [maximum, exclusiveMaximum].filter((bound) => bound !== undefined) as number[];
  const min = lower.length === 0 ? null : Math.max(...lower);
  const max = upper.length === 0 ? null : Math.min(...upper);
  return {
    min,
    max,
    excludesMin: min !== null && min === exclusiveMinimum,
    excludesMax: max !== null && max === exclusiveMaximum,
  };
}

/** Whether no number of the type is within the bounds. */
export function isEmptyRange(schema: Readonly<Record<string, unknown>>, type: "integer" | "number"): boolean {
  const bounds = numberBoundsOf(schema);
  if (bounds === null || bounds.min === null || bounds.max === null) return false;
  const { min, max, excludesMin, excludesMax } = bounds;
  if (type === "number") return min > max || (min === max && (excludesMin || excludesMax));
  const least = excludesMin ? Math.floor(min) + 1 : Math.ceil(min);
  return least > (excludesMax ? Math.ceil(max) - 1 : Math.floor(max));
}

/**
 * The range of a JSON Schema, from its bounds. Those of more than 15 digits are narrowed to so many.
 *
 * @param type One of its types, if it has several.
 */
export function numberRangeOf(schema: Readonly<Record<string, unknown>>, type: unknown = schema.type): NumberRange {
  const given = numberBoundsOf(schema);
  if (given === null || (given.min ?? 0) >= LARGEST || (given.max ?? 0) <= -LARGEST) return { kind: "unsupported" };
  const min = given.min !== null && given.min <= -LARGEST ? null : given.min;
  const max = given.max !== null && given.max >= LARGEST ? null : given.max;
  if (min === null && max === null) return { kind: "unbounded" };
  const options =
    type === "integer" ? integers({ ...given, min, max }) : type === "number" ? numbers({ ...given, min, max }) : [];
  return options.length === 0 ? { kind: "unsupported" } : { kind: "bounded", rule: options.join(" | ") };
}

/** None if no integer is between the bounds. */
function integers({ min: lower, max: upper, excludesMin, excludesMax }: NumberBounds): string[] {
  const min = lower === null ? null : integerWithin(excludesMin ? Math.floor(lower) + 1 : Math.ceil(lower), "up");
  const max = upper === null ? null : integerWithin(excludesMax ? Math.ceil(upper) - 1 : Math.floor(upper), "down");
  if (min !== null && max !== null && min > max) return [];
  const options: string[] = [];
  if (max === null || max >= 0n) options.push(...naturals({ min: largerOf(0n, min ?? 0n), max }));
  if (min === null || min < 0n) {
    const below = naturals({ min: max === null ? 1n : largerOf(1n, -max), max: min === null ? null : -min });
    options.push(...below.map((digits) => `"-" ${digits}`));
  }
  return options;
}

/** Like `integers`, with decimals where they fit. */
function numbers({ min, max, excludesMin, excludesMax }: NumberBounds): string[] {
  if (min !== null && max !== null && min > max) return [];
  const options: string[] = [];
  if (max === null || max >= 0) {
    const isFromZero = min === null || min < 0;
    options.push(
      ...magnitudes({
        min: isFromZero ? zero : magnitudeWithin(min, "up", excludesMin),
        max: max === null ? null : magnitudeWithin(max, "down", excludesMax),
        excludesMin: !isFromZero && excludesMin,
        excludesMax,
      }),
    );
  }
  if (min === null || min < 0) {
    // Zero is written without a sign.
    const isToZero = max === null || max >= 0;
    const below = magnitudes({
      min: isToZero ? zero : magnitudeWithin(-max, "up", excludesMax),
      max: min === null ? null : magnitudeWithin(-min, "down", excludesMin),
      excludesMin: isToZero || excludesMax,
      excludesMax: excludesMin,
    });
    options.push(...below.map((digits) => `"-" (${digits})`));
  }
  return options;
}

function magnitudes({ min: first, max: last, excludesMin, excludesMax }: MagnitudeBounds): string[] {
  if (last !== null && first.whole > last.whole) return [];
  const numDecimals = Math.max(1, MAX_DIGITS - String((last ?? first).whole).length);
  const options: string[] = [];
  const add = (whole: bigint, bounds: Pick<FractionBounds, "min" | "max">): void => {
    const { includesNone, digits } = fractionsBetween({ ...bounds, excludesMin, excludesMax }, numDecimals);
    if (digits !== null) options.push(`"${whole}" ("." (${digits}))${includesNone ? "?" : ""}`);
    else if (includesNone) options.push(`"${whole}"`);
  };
  if (last !== null && first.whole === last.whole) {
    if (first.fraction <= last.fraction) add(first.whole, { min: first.fraction, max: last.fraction });
    return options;
  }
  const isWhole = first.fraction === "" && !excludesMin;
  if (!isWhole) add(first.whole, { min: first.fraction, max: null });
  const start = isWhole ? first.whole : first.whole + 1n;
  if (last === null || start < last.whole) {
    const between = naturals({ min: start, max: last === null ? null : last.whole - 1n });
    options.push(...between.map((digits) => `${digits} ("." [0-9]{1, ${numDecimals}})?`));
  }
  if (last !== null) add(last.whole, { min: null, max: last.fraction });
  return options;
}

/** Natural numbers by their number of digits. A `max` of null means no bound but `MAX_WHOLE_DIGITS`. */
function naturals({ min, max }: IntegerBounds & { readonly min: bigint }): string[] {
  const least = String(min);
  const options: string[] = [];
  const numDigits = max === null ? least.length : String(max).length;
  for (let length = least.length; length <= numDigits; length++) {
    const first = length === least.length ? least : `1${"0".repeat(length - 1)}`;
    const last = length === numDigits && max !== null ? String(max) : "9".repeat(length);
    options.push(digitsBetween(first, last));
  }
  if (max === null && numDigits < MAX_WHOLE_DIGITS) options.push(`[1-9] [0-9]{${numDigits},${MAX_WHOLE_DIGITS - 1}}`);
  return options;
}

/** Texts of digits from `first` to `last`, which have equal length. */
function digitsBetween(first: string, last: string): string {
  if (first === last) return `"${first}"`;
  const numRest = first.length - 1;
  const [from, to] = [Number(first[0]), Number(last[0])];
  if (from === to) return `"${from}" ${digitsBetween(first.slice(1), last.slice(1))}`;
  const startsLow = /^0*$/.test(first.slice(1));
  const endsHigh = /^9*$/.test(last.slice(1));
  const options: string[] = [];
  if (!startsLow) options.push(`"${from}" ${digitsBetween(first.slice(1), "9".repeat(numRest))}`);
  const [whole, wholeEnd] = [startsLow ? from : from + 1, endsHigh ? to : to - 1];
  if (whole <= wholeEnd) options.push(`[${whole}-${wholeEnd}]${numRest === 0 ? "" : ` [0-9]{${numRest}}`}`);
  if (!endsHigh) options.push(`"${to}" ${digitsBetween("0".repeat(numRest), last.slice(1))}`);
  return options.length === 1 ? options[0]! : `(${options.join(" | ")})`;
}

function largerOf(left: bigint, right: bigint): bigint {
  return left > right ? left : right;
}
