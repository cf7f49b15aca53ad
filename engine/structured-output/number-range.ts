/** Turns bounds of numbers into grammars of their digits. */
import { fractionsBetween } from "./fraction-range.ts";
import type { FractionBounds } from "./fraction-range.ts";

export type NumberRange =
  | { readonly kind: "unbounded" }
  /** The body of a rule that matches exactly these JSON numbers, in EBNF. */
  | { readonly kind: "bounded"; readonly rule: string }
  | { readonly kind: "unsupported" };

/** Numbers with at most this many digits remain distinct and ordered as double-precision numbers. */
const MAX_DIGITS = 15;

/** Maximum number of digits before the point of a number without a bound on that side. */
export const MAX_WHOLE_DIGITS = 40;

/** `null` means no bound. */
interface Bounds {
  readonly min: number | null;
  readonly max: number | null;
}

export interface NumberBounds extends Bounds {
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
 * The range of a JSON Schema, from its bounds.
 *
 * @param type One of its types, if it has several.
 */
export function numberRangeOf(schema: Readonly<Record<string, unknown>>, type: unknown = schema.type): NumberRange {
  if (!rangeKeywords.some((keyword) => schema[keyword] !== undefined)) return { kind: "unbounded" };
  const bounds = numberBoundsOf(schema);
  if (bounds === null) return { kind: "unsupported" };
  const { min, max, excludesMin, excludesMax } = bounds;
  const options =
    type === "integer"
      ? integers({
          min: min === null ? null : excludesMin ? Math.floor(min) + 1 : Math.ceil(min),
          max: max === null ? null : excludesMax ? Math.ceil(max) - 1 : Math.floor(max),
        })
      : type === "number"
        ? numbers({ min, max, excludesMin, excludesMax })
        : [];
  return options.length === 0 ? { kind: "unsupported" } : { kind: "bounded", rule: options.join(" | ") };
}

/** Unsupported if no integer is between the bounds, or a bound is not a safe integer. */
function integers({ min, max }: Bounds): string[] {
  if (!isSafe(min) || !isSafe(max) || (min !== null && max !== null && min > max)) return [];
  const options: string[] = [];
  if (max === null || max >= 0) options.push(...naturals(Math.max(0, min ?? 0), max));
  if (min === null || min < 0) {
    const below = naturals(max === null ? 1 : Math.max(1, -max), min === null ? null : -min);
    options.push(...below.map((digits) => `"-" ${digits}`));
  }
  return options;
}

/** Like `integers`, with decimals where they fit. */
function numbers({ min, max, excludesMin, excludesMax }: NumberBounds): string[] {
  if (!isExact(min) || !isExact(max) || (min !== null && max !== null && min > max)) return [];
  const options: string[] = [];
  if (max === null || max >= 0) {
    const isFromZero = min === null || min < 0;
    options.push(
      ...magnitudes({ min: isFromZero ? 0 : min, max, excludesMin: !isFromZero && excludesMin, excludesMax }),
    );
  }
  if (min === null || min < 0) {
    // Zero is written without a sign.
    const isToZero = max === null || max >= 0;
    const below = magnitudes({
      min: isToZero ? 0 : -max,
      max: min === null ? null : -min,
      excludesMin: isToZero || excludesMax,
      excludesMax: excludesMin,
    });
    options.push(...below.map((digits) => `"-" (${digits})`));
  }
  return options;
}

/** Numbers from zero on. */
function magnitudes({ min, max, excludesMin, excludesMax }: NumberBounds & { readonly min: number }): string[] {
  const first = partsOf(min);
  const last = max === null ? null : partsOf(max);
  const numDecimals = Math.max(1, MAX_DIGITS - String((last ?? first).whole).length);
  const options: string[] = [];
  const add = (whole: number, bounds: Pick<FractionBounds, "min" | "max">): void => {
    const { includesNone, digits } = fractionsBetween({ ...bounds, excludesMin, excludesMax }, numDecimals);
    if (digits !== null) options.push(`"${whole}" ("." (${digits}))${includesNone ? "?" : ""}`);
    else if (includesNone) options.push(`"${whole}"`);
  };
  if (last !== null && first.whole === last.whole) {
    add(first.whole, { min: first.fraction, max: last.fraction });
    return options;
  }
  const isWhole = first.fraction === "" && !excludesMin;
  if (!isWhole) add(first.whole, { min: first.fraction, max: null });
  const start = isWhole ? first.whole : first.whole + 1;
  if (last === null || start < last.whole) {
    const between = naturals(start, last === null ? null : last.whole - 1);
    options.push(...between.map((digits) => `${digits} ("." [0-9]{1, ${numDecimals}})?`));
  }
  if (last !== null) add(last.whole, { min: null, max: last.fraction });
  return options;
}

/** Of an exact number from zero on, as digits after the point. */
function partsOf(bound: number): { readonly whole: number; readonly fraction: string } {
  const [whole, fraction = ""] = String(bound).split(".");
  return { whole: Number(whole), fraction };
}

/** Natural numbers by their number of digits. A `max` of null means no bound but `MAX_WHOLE_DIGITS`. */
function naturals(min: number, max: number | null): string[] {
  const least = String(min);
  const options: string[] = [];
  const numDigits = max === null ? least.length : String(max).length;
  for (let length = least.length; length <= numDigits; length++) {
    const first = length === least.length ? least : `1${"0".repeat(length - 1)}`;
    const last = length === numDigits && max !== null ? String(max) : "9".repeat(length);
    options.push(digitsBetween(first, last));
  }
  if (max === null) options.push(`[1-9] [0-9]{${numDigits},${MAX_WHOLE_DIGITS - 1}}`);
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

/** JSON Schemas generated from code bound every integer by the largest safe integers. */
function isSafe(bound: number | null): boolean {
  return bound === null || Number.isSafeInteger(bound);
}

/** Whether its decimal digits are few enough, and written without an exponent. */
function isExact(bound: number | null): boolean {
  if (bound === null) return true;
  const text = String(Math.abs(bound));
  return /^\d+(?:\.\d+)?$/.test(text) && text.replace(".", "").length <= MAX_DIGITS;
}
